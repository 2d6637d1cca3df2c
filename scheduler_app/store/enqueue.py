"""Inserting runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from scheduler_app.store.statements import hot_rows, load, rows

_SQL = load("enqueue.sql")


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to insert. `args`, `payload` and `canvas` are JSON text; `countdown` is seconds from now.

    `starting_deadline`, seconds after its time, is when it expires unless `expires_at` says."""

    id: UUID
    task: str
    args: str
    payload: str
    max_attempts: int
    time_limit: int
    queue: str
    priority: int
    marked: bool
    trigger: str = "code"
    triggered_by: str = ""
    countdown: float = 0.0
    run_after: datetime | None = None
    scheduled_for: datetime | None = None
    job_id: int | None = None
    job_version: int | None = None
    request_key: str = ""
    concurrency_key: str = ""
    ordering_key: str = ""
    expires_at: datetime | None = None
    starting_deadline: int | None = None
    canvas: str | None = None


def insert_runs(runs: Sequence[NewRun]) -> set[UUID]:
    """Insert the runs; the ids that were new come back."""
    params = {
        "ids": [r.id for r in runs],
        "jobs": [r.job_id for r in runs],
        "tasks": [r.task for r in runs],
        "args": [r.args for r in runs],
        "payloads": [r.payload for r in runs],
        "slots": [r.scheduled_for for r in runs],
        "max_attempts": [r.max_attempts for r in runs],
        "run_after": [r.run_after for r in runs],
        "countdowns": [r.countdown for r in runs],
        "marked": [r.marked for r in runs],
        "triggers": [r.trigger for r in runs],
        "by": [r.triggered_by for r in runs],
        "request_keys": [r.request_key for r in runs],
        "concurrency_keys": [r.concurrency_key for r in runs],
        "ordering_keys": [r.ordering_key for r in runs],
        "expires": [r.expires_at for r in runs],
        "time_limits": [r.time_limit for r in runs],
        "canvas": [r.canvas for r in runs],
        "job_versions": [r.job_version for r in runs],
        "queues": [r.queue for r in runs],
        "priorities": [r.priority for r in runs],
        "starting_deadlines": [r.starting_deadline for r in runs],
    }
    return {row[0] for row in hot_rows(_SQL["insert_runs"], params)}


def refuse_runs(errors: Mapping[UUID, str]) -> int:
    """End runs that were inserted in this transaction and cannot be worked on, each with its error; how many."""
    return len(rows(_SQL["refuse_runs"], {"ids": list(errors), "errors": list(errors.values())}))


def find_by_request_key(task: str, request_key: str) -> UUID | None:
    """The run that already has this key, if any."""
    found = rows(_SQL["find_by_request_key"], {"task": task, "request_key": request_key})
    return found[0][0] if found else None


def existing_runs(ids: Sequence[UUID]) -> set[UUID]:
    """Which of these runs exist."""
    return {row[0] for row in rows(_SQL["existing_runs"], {"ids": list(ids)})}


def unmark_runs(ids: Sequence[UUID]) -> int:
    """Put back what could not be published; how many were."""
    return len(rows(_SQL["unmark_runs"], {"ids": list(ids)}))


def notify_runs() -> None:
    """Wake the dispatcher."""
    rows(_SQL["notify_runs"])
