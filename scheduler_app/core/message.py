"""The hint: all that a broker message of ours says. The row is the truth; arguments never travel in the message.

A hint is a Celery protocol-2 message (docs.celeryq.dev, "Message Protocol") so that ordinary tools can read it, with
an empty body and one header of ours: the attempts the run had when the hint was written. A claim succeeds only at
that number, so an old or doubled hint claims nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

ATTEMPT_HEADER: Final = "everyslot_attempt"
ATTEMPT_MOST: Final = 2**31 - 2  # the attempt after it is the last number that its column holds
BODY: Final = "[[], {}, {}]"


@dataclass(frozen=True, slots=True)
class Hint:
    """A run that may be claimed. `attempt` is the row's `attempts` at dispatch (0 for a run never tried)."""

    run_id: UUID
    task: str
    attempt: int
    queue: str
    priority: int


def headers(hint: Hint) -> dict[str, object]:
    """The message headers of a hint."""
    run_id = str(hint.run_id)
    return {
        "id": run_id,
        "root_id": run_id,
        "task": hint.task,
        "lang": "py",
        "ignore_result": True,
        ATTEMPT_HEADER: hint.attempt,
    }


def read_attempt(raw: object) -> int | None:
    """The attempt a message names, or None if it is not one of ours."""
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw <= ATTEMPT_MOST else None
