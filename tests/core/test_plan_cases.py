"""What Kubernetes' CronJob controller decides in its own tests, asked of our plan (tests/data/schedule.jsonl)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from scheduler_app.core.errors import InvalidSchedule
from scheduler_app.core.overlap import ActiveRun
from scheduler_app.core.plan import JobFacts, Plan, plan
from scheduler_app.core.schedule import parse

CASES = Path(__file__).parents[1] / "data" / "schedule.jsonl"
REFUSED_HERE = {"policy-0039", "policy-0043"}  # no schedule at all; a zone inside the text, which we refuse
_ids = count(1)


def cases() -> Iterator[Any]:
    for line in CASES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if case["kind"] == "policy" and case["topic"] == "missed+concurrency":
            yield pytest.param(case, id=case["id"])


def instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def decide(given: dict[str, Any]) -> Plan:
    created, now = instant(given["created_at"]), instant(given["now"])
    assert created is not None
    assert now is not None
    schedule = parse(given["schedule"], given["timezone"] or "UTC", anchor=created)
    cursor = schedule.next(instant(given["last_scheduled_at"]) or created)
    assert cursor is not None
    facts = JobFacts(
        id=1,
        schedule=schedule,
        next_run_at=cursor,
        starting_deadline=given["starting_deadline_s"],
        concurrency_policy=given["concurrency"].lower(),
    )
    active = [ActiveRun(UUID(int=next(_ids)), running=True)] * given["active_runs"]
    return plan(facts, now, lambda: UUID(int=next(_ids)), active)


@pytest.mark.parametrize("case", list(cases()))
def test_the_plan_starts_what_kubernetes_starts(case: dict[str, Any]) -> None:
    if case["id"] in REFUSED_HERE:
        with pytest.raises(InvalidSchedule):
            decide(case["given"])
        return
    expected, planned = case["expected"], decide(case["given"])
    started = [run.scheduled_for for run in planned.records]
    assert len(started) == int(expected["start"])
    if expected["scheduled_for"]:
        assert started == [instant(expected["scheduled_for"])]
    assert bool(planned.stop) == expected["stop_running"]
