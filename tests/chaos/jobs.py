"""Three hundred jobs of all kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final

from scheduler_app.lifecycle import define


@dataclass(frozen=True, slots=True)
class Kind:
    """So many jobs of one kind, each every `every` seconds."""

    number: int
    task: str
    every: int
    fields: Mapping[str, Any]


KINDS: Final = {
    "short": Kind(150, "short", 20, {}),
    "kept up": Kind(10, "short", 5, {"catch_up": "all"}),
    "long": Kind(20, "working", 30, {"payload": {"seconds": 5}}),
    "flaky": Kind(36, "flaky", 30, {"queue": "fast"}),
    "poison": Kind(4, "poison", 30, {}),
    "transfer": Kind(40, "transfer", 10, {}),
    "stepwise": Kind(20, "stepwise", 20, {"queue": "slow"}),
    "forbid": Kind(5, "working", 6, {"payload": {"seconds": 3}, "concurrency_policy": "forbid"}),
    "replace": Kind(5, "working", 6, {"payload": {"seconds": 8}, "concurrency_policy": "replace"}),
    "queue one": Kind(5, "working", 6, {"payload": {"seconds": 4}, "concurrency_policy": "queue_one"}),
    "queue all": Kind(5, "working", 20, {"payload": {"seconds": 2}, "concurrency_policy": "queue_all"}),
}
ALONE: Final = ("forbid", "replace", "queue one", "queue all")  # never two at once


def define_jobs(until: datetime, random: Random) -> int:
    """Make them; their last slot is at or before `until`. How many there are."""
    for name, kind in KINDS.items():
        for number in range(kind.number):
            fields = {
                "name": f"{name} {number:03}",
                "task": f"tests.chaos.work.{kind.task}",
                "schedule": f"@every {kind.every}s",
                "priority": random.randint(0, 9),
                "end_at": until,
                **kind.fields,
            }
            define.create(fields, origin="admin", by="chaos")
    return sum(kind.number for kind in KINDS.values())
