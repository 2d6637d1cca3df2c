"""Reading due jobs and moving their cursors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from scheduler_app.store.arrays import literal
from scheduler_app.store.statements import load, rows

_SQL = load("jobs.sql")
UNKNOWN_TASK = "no such task: "


class DueJob(NamedTuple):
    """The columns of a job that recording reads, in the order of the statement. Durations are seconds.

    `anchor` and `cursor` are microseconds since the epoch: every due job has them, and numbers load fast.
    """

    id: int
    name: str
    task: str
    schedule: str
    timezone: str
    anchor: int
    gap: str
    fold: str
    cursor: int
    misfire_grace: int
    starting_deadline: int | None
    catch_up: str
    catch_up_limit: int
    jitter: int
    start_at: datetime | None
    end_at: datetime | None
    paused_until: datetime | None
    max_runs: int | None
    recorded_runs: int
    concurrency_policy: str
    max_attempts: int | None
    version: int


@dataclass(frozen=True, slots=True)
class NotedGap:
    """A range of slots already noted as skipped."""

    first: datetime
    last: datetime
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a job's cursor goes (None: the schedule has ended), and how many runs were recorded on the way."""

    job_id: int
    next_run_at: datetime | None
    runs: int


def due_jobs(now: datetime, limit: int, newest_first: bool = False) -> list[DueJob]:
    """Lock and read the jobs that are due at `now`; jobs that others have locked are left out."""
    statement = _SQL["due_jobs_newest" if newest_first else "due_jobs_oldest"]
    return [DueJob._make(row) for row in rows(statement, {"now": now, "limit": limit})]


def move_cursors(moves: Sequence[Cursor]) -> None:
    """Set the cursors of locked jobs."""
    rows(
        _SQL["move_cursors"],
        {
            "ids": literal(move.job_id for move in moves),
            "cursors": literal(move.next_run_at for move in moves),
            "runs": literal(move.runs for move in moves),
        },
    )


def quarantine_jobs(reasons: dict[int, str]) -> int:
    """Set locked jobs aside, each with its reason; how many were not yet."""
    return len(rows(_SQL["quarantine_jobs"], {"ids": list(reasons), "reasons": list(reasons.values())}))


def lift_quarantine(tasks: Sequence[str]) -> list[int]:
    """Take back the jobs that were set aside because one of these tasks was unknown; their ids."""
    params = {"tasks": list(tasks), "unknown": UNKNOWN_TASK}
    return [row[0] for row in rows(_SQL["lift_quarantine"], params)]


def newest_gaps(jobs: Sequence[int]) -> dict[int, NotedGap]:
    """The newest skipped range of each job that has one."""
    return {row[0]: NotedGap(*row[1:]) for row in rows(_SQL["newest_gaps"], {"ids": list(jobs)})}


def next_wake() -> tuple[datetime, datetime | None]:
    """The database's time and the first cursor of all jobs (None if no job has one)."""
    now, cursor = rows(_SQL["next_wake"])[0]
    return now, cursor
