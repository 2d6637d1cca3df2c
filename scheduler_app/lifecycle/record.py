"""Record: due slots become runs (or visible skips), and the cursors move, in one transaction under the term's fence.

Guaranteed: one run a slot, by the unique key alone, whatever the election does; a slot is recorded or skipped in the
transaction that moves the cursor past it. A job that cannot be planned is set aside and delays no other.
It would break if a cursor moved without its slots, or if a run of a slot were inserted under another instant.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from scheduler_app.conf import conf
from scheduler_app.core.errors import EveryslotError
from scheduler_app.core.overlap import ActiveRun
from scheduler_app.core.plan import Gap, JobFacts, Plan, plan
from scheduler_app.core.retry import RetryOverrides, resolve
from scheduler_app.core.schedule import parse
from scheduler_app.core.schedule.base import SECOND, to_instant, to_micros
from scheduler_app.instrument import emit
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.elect import IDLE, LOCK, SHARD, STATEMENT, Fence
from scheduler_app.models.ids import new_id
from scheduler_app.store import jobs as job_store
from scheduler_app.store import record as store
from scheduler_app.store import term as term_store
from scheduler_app.store.jobs import UNKNOWN_TASK, Cursor, DueJob
from scheduler_app.store.record import NewGap, NewSlot

RUNS_A_PASS: Final = 5_000
PLANNING: Final = 0.5  # seconds a pass may plan: far below IDLE, which would end the transaction
REASON_LENGTH: Final = 2_000
ORPHANS: Final = 500
BEHIND: Final = 60  # seconds; gaps go on over several passes only where more than SCAN slots are overdue


class UnknownTask(EveryslotError):
    """The job names a task that this process does not know."""

    code = "unknown_task"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one pass did. `more`: due slots are left for the next pass; `locked`: what is left is another's just now.

    `wait` is the seconds, by the database's clock, until the first cursor comes; None if no job has one.
    """

    runs: int = 0
    skipped: int = 0
    quarantined: int = 0
    more: bool = False
    locked: bool = False
    wait: float | None = None


def record(
    fence: Fence | None,
    *,
    now: datetime | None = None,
    batch: int | None = None,
    newest_first: bool = False,
) -> Recorded | None:
    """Record the due slots of up to `batch` jobs; None, with nothing written, if the term of `fence` is over.

    Without a fence nothing but the unique key guards the pass. `now` stands for the database's time, in tests.
    `newest_first` takes the jobs that came due last: every second pass over a backlog does so, so that a job that
    is years behind delays no other.
    """
    size = batch or conf().record_batch
    with transaction.atomic():
        store.bound_transaction(IDLE, LOCK, STATEMENT)
        moment = _renewed(fence)
        if moment is None:
            return None
        due = job_store.due_jobs(now or moment, size, newest_first)
        this_pass = _Pass(now or moment)
        this_pass.plan_all(due)
        runs = this_pass.write(fence.epoch if fence else None)
        done = _summary(this_pass, runs, full=len(due) == size, now=now)
    _announce(this_pass, done)
    return done


def lift_quarantine() -> int:
    """Take back the jobs set aside for a task that an earlier leader did not know and this one does; how many."""
    with transaction.atomic():
        lifted = job_store.lift_quarantine([options.name for options in catalog.all_tasks()])
    for job in lifted:
        emit("job.lifted", job=job)
    return len(lifted)


def release_orphans() -> int:
    """Free runs that wait for a run which has ended or was never there; how many."""
    with transaction.atomic():
        freed = store.release_orphans(ORPHANS)
    if freed:
        emit("run.orphans_released", runs=freed)
    return freed


def _renewed(fence: Fence | None) -> datetime | None:
    """The database's time, with the term renewed and locked until the commit; None if the term is over."""
    if fence is None:
        return term_store.database_time()
    return term_store.renew_term(SHARD, fence.holder, fence.epoch)


@dataclass(slots=True)
class _Pass:
    """Collects what the plans of one batch want written, so that each table is written in one statement."""

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

    def plan_all(self, due: Sequence[DueJob]) -> None:
        noted = _noted_gaps(due, self.now)
        active, changing = _active_runs(due)
        deadline = time.monotonic() + PLANNING
        for job in due:
            if time.monotonic() > deadline or self.runs >= RUNS_A_PASS:
                self.more = True
                return
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

    def write(self, epoch: int | None) -> int:
        """Write everything; how many runs to be done were new."""
        if self.cancel:
            store.cancel_replaced(self.cancel)
        if self.stop:
            store.stop_replaced(self.stop)
        inserted = store.insert_slots(self.slots, epoch) if self.slots else set()
        if self.gaps:
            store.insert_gaps(self.gaps)
        if self.cursors:
            job_store.move_cursors(self.cursors)
        if self.faults:
            job_store.quarantine_jobs(self.faults)
        if len(inserted) == len(self.slots):
            return self.runs
        return sum(1 for slot in self.slots if not slot.reason and slot.id in inserted)

    @property
    def skipped(self) -> int:
        """Slots that will not run, counted singly and in gaps."""
        return sum(1 for slot in self.slots if slot.reason) + sum(gap.count for gap in self.gaps)


def _summary(this_pass: _Pass, runs: int, *, full: bool, now: datetime | None) -> Recorded:
    clock, cursor = job_store.next_wake()
    wait = None if cursor is None else (cursor - (now or clock)).total_seconds()
    more = this_pass.more or full
    return Recorded(
        runs=runs,
        skipped=this_pass.skipped,
        quarantined=len(this_pass.faults),
        more=more,
        locked=this_pass.deferred or (not more and cursor is not None and cursor <= this_pass.now),
        wait=wait,
    )


def _announce(this_pass: _Pass, done: Recorded) -> None:
    if done.runs or done.skipped:
        emit("run.recorded", runs=done.runs, skipped=done.skipped, jobs=len(this_pass.cursors))
    for job, reason in this_pass.faults.items():
        emit("job.quarantined", job=job, reason=reason)


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
