"""Watching workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from scheduler_app.store.statements import load, rows

_SQL = load("reap.sql")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A worker as its row and its session lock show it now. `lease` is seconds; `beats` grows with each heartbeat."""

    id: UUID
    beats: int
    lease: float
    locked: bool
    lock_held: bool


def watch_workers() -> tuple[datetime, list[Sighting]]:
    """When this database server started, and every worker that has not stopped."""
    found = rows(_SQL["watch_workers"])
    return found[0][0], [Sighting(*worker) for _, *worker in found if worker[0] is not None]


def workers_with_leftovers(limit: int) -> list[UUID]:
    """Stopped workers under whose name something still runs."""
    return [row[0] for row in rows(_SQL["workers_with_leftovers"], {"limit": limit})]


def forget_workers(keep: float, limit: int) -> int:
    """Remove the rows of workers that stopped more than `keep` seconds ago; how many."""
    return len(rows(_SQL["forget_workers"], {"keep": keep, "limit": limit}))


def bound_session(lock: float) -> None:
    """Bound how long statements of this session wait for a lock, in seconds."""
    rows(_SQL["bound_session"], {"lock": str(round(lock * 1000))})
