"""Progress: how far an attempt is, and whether it should stop. Outside of the task's own transaction if it has none."""

from __future__ import annotations

from uuid import UUID

from scheduler_app.store.work import note_progress, wants_stop


def report(run_id: UUID, attempt: int, worker: UUID, percent: float | None, message: str) -> bool:
    """Write the progress (if any) of the attempt; True if it should stop: cancelled, or not current any more."""
    if percent is None:
        return wants_stop(run_id, attempt, worker)
    asked = note_progress(run_id, attempt, worker, percent, message)
    return True if asked is None else asked
