"""Inserting the runs and gaps of recorded slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from scheduler_app.store.arrays import literal, words
from scheduler_app.store.statements import load, rows

_SQL = load("record.sql")


@dataclass(frozen=True, slots=True)
class NewSlot:
    """A run to insert for a slot; with a `reason` it is inserted as skipped."""

    id: UUID
    job_id: int
    slot: datetime
    run_after: datetime
    max_attempts: int
    held_by: UUID | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NewGap:
    """A range of skipped slots; both ends are slots."""

    job_id: int
    first: datetime
    last: datetime
    count: int
    reason: str


def bound_transaction(idle: float, lock: float, statement: float) -> None:
    """Bound this transaction; seconds it may sit idle, wait for a lock, and take for one statement."""
    bounds = {"idle": idle, "lock": lock, "statement": statement}
    rows(_SQL["bound_transaction"], {name: str(round(value * 1000)) for name, value in bounds.items()})


def active_runs(jobs: Sequence[int]) -> dict[int, list[tuple[UUID, bool]]]:
    """By job, (run, running) of the runs that are not final, in the order of recording."""
    found: dict[int, list[tuple[UUID, bool]]] = {}
    for job_id, run_id, running in rows(_SQL["active_runs"], {"jobs": list(jobs)}):
        found.setdefault(job_id, []).append((run_id, running))
    return found


def lock_active_runs(jobs: Sequence[int]) -> set[UUID]:
    """Lock the jobs' active runs; those that another transaction is changing are left out."""
    return {row[0] for row in rows(_SQL["lock_active_runs"], {"jobs": list(jobs)})}


def insert_slots(slots: Sequence[NewSlot], epoch: int | None) -> set[UUID]:
    """Insert runs under an epoch; the ids that were new come back."""
    params = {
        "ids": literal(each.id for each in slots),
        "jobs": literal(each.job_id for each in slots),
        "slots": literal(each.slot for each in slots),
        "reasons": words(each.reason for each in slots),
        "run_after": literal(each.run_after for each in slots),
        "held_by": literal(each.held_by for each in slots),
        "max_attempts": literal(each.max_attempts for each in slots),
        "epoch": epoch,
    }
    return {row[0] for row in rows(_SQL["insert_slots"], params)}


def insert_gaps(gaps: Sequence[NewGap]) -> None:
    """Note ranges of skipped slots, or make them longer."""
    params = {
        "jobs": [gap.job_id for gap in gaps],
        "firsts": [gap.first for gap in gaps],
        "lasts": [gap.last for gap in gaps],
        "counts": [gap.count for gap in gaps],
        "reasons": [gap.reason for gap in gaps],
    }
    rows(_SQL["insert_gaps"], params)


def cancel_replaced(runs: Sequence[UUID]) -> None:
    """Cancel earlier runs that have not started."""
    rows(_SQL["cancel_replaced"], {"ids": list(runs)})


def stop_replaced(runs: Sequence[UUID]) -> None:
    """Ask for the end of earlier runs that have started."""
    rows(_SQL["stop_replaced"], {"ids": list(runs)})


def release_orphans(limit: int) -> int:
    """Free runs that wait for a run which will never end; how many."""
    return len(rows(_SQL["release_orphans"], {"limit": limit}))
