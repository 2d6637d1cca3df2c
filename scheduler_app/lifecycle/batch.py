"""One batch of due jobs: planned, gathered and written in one statement a table, under the caller's locks.

Guaranteed: a job that cannot be planned, or whose runs the database refuses, is set aside with the reason and stops
no other. It would break if the plan of a job read anything that another job's writes change.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.db import DataError, IntegrityError, transaction

from scheduler_app.core.errors import EveryslotError
from scheduler_app.core.overlap import ActiveRun
from scheduler_app.core.plan import Gap, JobFacts, Plan, plan
from scheduler_app.core.retry import RetryOverrides, resolve
from scheduler_app.core.schedule import parse
from scheduler_app.core.schedule.base import SECOND, to_instant, to_micros
from scheduler_app.lifecycle import catalog
from scheduler_app.models.ids import new_id
from scheduler_app.store import jobs as job_store
from scheduler_app.store import record as store
from scheduler_app.store.jobs import UNKNOWN_TASK, Cursor, DueJob
from scheduler_app.store.record import NewGap, NewSlot

RUNS: Final = 5_000  # runs of one batch at most, over all its jobs
PLANNING: Final = 0.5  # seconds a batch may plan: far below the idle timeout, which would end the transaction
REASON_LENGTH: Final = 2_000
BEHIND: Final = 60  # seconds; gaps go on over several passes only where more than SCAN slots are overdue


class UnknownTask(EveryslotError):
    """The job names a task that this process does not know."""

    code = "unknown_task"


def write_batch(due: Sequence[DueJob], now: datetime, epoch: int | None) -> Batch:
    """Plan and write the due jobs; what was done. When the database refuses the whole, they are written one by one."""
    try:
        with transaction.atomic():
            return Batch(now).plan_all(due).write(epoch)
    except (DataError, IntegrityError):
        return _one_by_one(due, now, epoch)


def _one_by_one(due: Sequence[DueJob], now: datetime, epoch: int | None) -> Batch:
    total = Batch(now)
    deadline = time.monotonic() + PLANNING
    for job in due:
        if time.monotonic() > deadline:
            total.more = True
            break
        try:
            with transaction.atomic():
                total.add(Batch(now).plan_all([job]).write(epoch))
        except (DataError, IntegrityError) as error:
            total.faults[job.id] = _reason(error)
            job_store.quarantine_jobs({job.id: total.faults[job.id]})
    return total


@dataclass(slots=True)
class Batch:
    """What the plans of a batch want written. `more`: due slots are left; `deferred`: jobs whose runs are changing.

    `runs` are those planned, `inserted` those that were new.
    """

    now: datetime
    slots: list[NewSlot] = field(default_factory=list)
    gaps: list[NewGap] = field(default_factory=list)
    cursors: list[Cursor] = field(default_factory=list)
    cancel: list[UUID] = field(default_factory=list)
    stop: list[UUID] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)
    more: bool = False
    deferred: bool = False
    runs: int = 0
    inserted: int = 0

    def plan_all(self, due: Sequence[DueJob]) -> Batch:
        """Plan each job; those that cannot be planned become faults."""
        noted = _noted_gaps(due, self.now)
        active, changing = _active_runs(due)
        deadline = time.monotonic() + PLANNING
        for job in due:
            if time.monotonic() > deadline or self.runs >= RUNS:
                self.more = True
                break
            if job.id in changing:
                self.deferred = True
                continue
            try:
                options = catalog.find(job.task)
                if options is None:
                    raise UnknownTask(UNKNOWN_TASK + job.task)
                attempts = _max_attempts(job.max_attempts, options.retry)
                planned = plan(_facts(job, noted.get(job.id)), self.now, new_id, active.get(job.id, ()))
            except Exception as error:
                self.faults[job.id] = _reason(error)
            else:
                self._collect(job, planned, attempts)
        return self

    def _collect(self, job: DueJob, planned: Plan, attempts: int) -> None:
        self.slots += [
            NewSlot(run.id, job.id, run.scheduled_for, run.run_after, attempts, run.held_by) for run in planned.records
        ]
        self.slots += [NewSlot(new_id(), job.id, slot, slot, attempts, reason=reason) for slot, reason in planned.skips]
        self.gaps += [NewGap(job.id, gap.first, gap.last, gap.count, gap.reason) for gap in planned.ranges]
        self.cursors.append(Cursor(job.id, planned.next_run_at, len(planned.records)))
        self.cancel += planned.cancel
        self.stop += planned.stop
        self.runs += len(planned.records)
        self.more = self.more or planned.more

    def write(self, epoch: int | None) -> Batch:
        """Write everything in the open transaction."""
        if self.cancel:
            store.cancel_replaced(self.cancel)
        if self.stop:
            store.stop_replaced(self.stop)
        new = store.insert_slots(self.slots, epoch) if self.slots else set()
        if self.gaps:
            store.insert_gaps(self.gaps)
        if self.cursors:
            job_store.move_cursors(self.cursors)
        if self.faults:
            job_store.quarantine_jobs(self.faults)
        all_new = len(new) == len(self.slots)
        self.inserted = self.runs if all_new else sum(1 for slot in self.slots if not slot.reason and slot.id in new)
        return self

    def add(self, other: Batch) -> None:
        """Count what another batch has written."""
        self.slots += other.slots
        self.gaps += other.gaps
        self.cursors += other.cursors
        self.faults |= other.faults
        self.runs += other.runs
        self.inserted += other.inserted
        self.more, self.deferred = self.more or other.more, self.deferred or other.deferred

    @property
    def skipped(self) -> int:
        """Slots that will not run, counted singly and in gaps."""
        return sum(1 for slot in self.slots if slot.reason) + sum(gap.count for gap in self.gaps)


def _noted_gaps(due: Sequence[DueJob], now: datetime) -> dict[int, Gap]:
    """The newest noted range of the jobs that are so far behind that a gap may go on."""
    limit = to_micros(now) - BEHIND * SECOND
    behind = [job.id for job in due if job.cursor < limit]
    if not behind:
        return {}
    found = job_store.newest_gaps(behind)
    return {job_id: Gap(gap.first, gap.last, gap.count, gap.reason) for job_id, gap in found.items()}


def _active_runs(due: Sequence[DueJob]) -> tuple[dict[int, list[ActiveRun]], set[int]]:
    """The active runs by job, and the jobs to leave for later because one of theirs is changing just now.

    They are locked first, so that a predecessor cannot end between the plan and the commit and leave its successor
    held for ever. `forbid` only looks. A run that a long transaction keeps locked counts as active; what it might
    leave behind is freed by `release_orphans`. Only `replace` must write to it, and so comes back later.
    """
    looking = [job.id for job in due if job.concurrency_policy != "allow"]
    if not looking:
        return {}, set()
    writing = [job.id for job in due if job.concurrency_policy not in ("allow", "forbid")]
    locked = store.lock_active_runs(writing) if writing else set()
    found = store.active_runs(looking)
    replacing = {job.id for job in due if job.concurrency_policy == "replace"}
    changing = {job for job in replacing if any(run not in locked for run, _ in found.get(job, ()))}
    return {job: [ActiveRun(*run) for run in runs] for job, runs in found.items()}, changing


def _facts(job: DueJob, gap: Gap | None) -> JobFacts:
    changes: dict[str, Any] = {"gap": job.gap or None, "fold": job.fold or None}
    return JobFacts(
        id=job.id,
        schedule=parse(job.schedule, job.timezone, key=job.name, anchor=to_instant(job.anchor), **changes),
        next_run_at=to_instant(job.cursor),
        misfire_grace=job.misfire_grace,
        starting_deadline=job.starting_deadline,
        catch_up=job.catch_up,
        catch_up_limit=job.catch_up_limit,
        jitter=job.jitter,
        start_at=job.start_at,
        end_at=job.end_at,
        paused_until=job.paused_until,
        remaining=None if job.max_runs is None else job.max_runs - job.recorded_runs,
        concurrency_policy=job.concurrency_policy,
        gap=gap,
    )


@lru_cache(maxsize=4096)
def _max_attempts(of_job: int | None, of_task: RetryOverrides) -> int:
    return resolve(RetryOverrides(of_job), of_task).max_attempts


def _reason(error: Exception) -> str:
    text = str(error) if isinstance(error, EveryslotError) else f"{type(error).__name__}: {error}"
    return text.replace("\0", "")[:REASON_LENGTH]
