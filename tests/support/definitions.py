"""Tasks, jobs and runs for tests that need rows but no worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from scheduler_app.core.options import TaskOptions
from scheduler_app.lifecycle import catalog, define
from scheduler_app.lifecycle.loading import load_tasks
from scheduler_app.models import Job, JobRun
from scheduler_app.store.define import database_now


def report(month: str = "2026-11", rows: int = 10) -> None:
    """Stands for a task with arguments."""


def greet(name: str) -> None:
    """Stands for a task that needs an argument."""


def options(name: str = "tests.report", function: Callable[..., Any] = report, **declared: Any) -> TaskOptions:
    """What `durable_task` would register for the function."""
    return TaskOptions(name=name, signature=inspect.signature(function), **declared)


@contextmanager
def known_tasks(*known: TaskOptions) -> Iterator[None]:
    """Exactly these tasks are known meanwhile. The project's own are loaded first, since modules load only once."""
    load_tasks()
    before = dict(catalog._known)
    catalog._known.clear()
    for each in known:
        catalog.register(each)
    try:
        yield
    finally:
        catalog._known.clear()
        catalog._known.update(before)


def a_job(**fields: Any) -> Job:
    """A job made through the front door."""
    given = {"name": "report", "task": "tests.report", "schedule": "0 9 * * *"} | fields
    return define.create(given, origin=given.pop("origin", "admin"), by="tester")


def a_run(job: Job | None = None, **columns: Any) -> JobRun:
    """A run row as the store would have written it; by default queued, due and undispatched."""
    now = database_now()
    values: dict[str, Any] = {"task": "tests.report", "scheduled_for": now, "run_after": now, "trigger": "schedule"}
    values |= columns
    status = values.get("status", "queued")
    if status == "running":
        values = {
            "attempts": 1,
            "locked_by": JobRun().id,
            "locked_until": now + timedelta(30),
            "started_at": now,
        } | values
    if status in ("succeeded", "dead", "cancelled", "skipped"):
        values = {"finished_at": now, "reason": "" if status == "succeeded" else "failed"} | values
    if status == "succeeded":
        values = {"attempts": 1, **values}
    return JobRun.objects.create(job=job, **values)


def set_cursor(job: Job, instant: datetime | None) -> None:
    """What a recorder that was away would have left."""
    Job.objects.filter(pk=job.pk).update(next_run_at=instant)
