"""What a change of a job does beside its row."""

from __future__ import annotations

from datetime import datetime

from scheduler_app.store.statements import load, rows

_SQL = load("define.sql")


def database_now() -> datetime:
    """The database's time: the only clock that decides which slots have passed."""
    now: datetime = rows(_SQL["database_now"])[0][0]
    return now


def remove_ahead(job_id: int) -> list[datetime]:
    """Remove the job's unstarted runs recorded ahead of their slots; those slots, oldest first."""
    return sorted(row[0] for row in rows(_SQL["remove_ahead"], {"job": job_id}))


def note_passed(job_id: int, first: datetime, last: datetime, count: int, reason: str, version: int) -> None:
    """Note that slots from `first` to `last` will not run."""
    rows(
        _SQL["note_passed"],
        {"job": job_id, "first": first, "last": last, "count": count, "reason": reason, "version": version},
    )


def notify_jobs() -> None:
    """Wake the recorder: a job changed."""
    rows(_SQL["notify_jobs"])
