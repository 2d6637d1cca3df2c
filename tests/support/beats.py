"""Jobs with a cursor of the test's choosing, and terms, for tests of recording, dispatching and reaping."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from scheduler_app.lifecycle import elect
from scheduler_app.lifecycle.elect import Fence
from scheduler_app.models import Job, Term
from scheduler_app.store.term import database_time

TASK = "tests.report"


def second_ago(seconds: float = 0.0) -> datetime:
    """A whole second of the database's clock, so many seconds ago: a slot of every `@every 1s`."""
    return database_time().replace(microsecond=0) - timedelta(seconds=seconds)


def due_jobs(number: int, cursor: datetime | None = None, **columns: Any) -> list[Job]:
    """Jobs of `@every 1h` (or as told) that are due at `cursor`, by default just now."""
    slot = cursor or second_ago()
    given = {"task": TASK, "schedule": "@every 1h", "anchor": slot, "next_run_at": slot} | columns
    prefix = given.pop("name", "job")
    jobs = [Job(name=f"{prefix}-{n}", **given) for n in range(number)]
    return Job.objects.bulk_create(jobs)


def lead(holder: str = "tests") -> Fence:
    """A term for the test."""
    Term.objects.update(holder="", session_locked=False)
    won = elect.contend(holder)
    assert won is not None
    return won.fence
