"""The states of a run and every legal move between them, in one table.

A run is the duty to do a job once. `queued` and `running` are its active states; the others are final, except that a
person may send a dead or cancelled run back (redrive) and ask for a skipped slot after all (backfill).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


ACTIVE: Final = frozenset({Status.QUEUED, Status.RUNNING})
FINAL: Final = frozenset(Status) - ACTIVE

MOVES: Final[dict[Status, frozenset[Status]]] = {
    Status.QUEUED: frozenset({Status.RUNNING, Status.CANCELLED, Status.SKIPPED, Status.DEAD}),
    Status.RUNNING: frozenset({Status.SUCCEEDED, Status.QUEUED, Status.DEAD, Status.CANCELLED}),
    Status.DEAD: frozenset({Status.QUEUED}),
    Status.CANCELLED: frozenset({Status.QUEUED}),
    Status.SKIPPED: frozenset({Status.QUEUED}),
    Status.SUCCEEDED: frozenset(),
}


def may_move(old: Status, new: Status) -> bool:
    """Whether a run in state `old` may become `new`."""
    return new in MOVES[old]
