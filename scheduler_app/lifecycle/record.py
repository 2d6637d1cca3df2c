"""Record: due slots become runs (or visible skips), and the cursors move, in one transaction under the term's fence.

Guaranteed: one run a slot, by the unique key alone, whatever the election does; a slot is recorded or skipped in the
transaction that moves the cursor past it. A job that cannot be planned is set aside and delays no other.
It would break if a cursor moved without its slots, or if a run of a slot were inserted under another instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import transaction

from scheduler_app.conf import conf
from scheduler_app.instrument import emit
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.batch import Batch, write_batch
from scheduler_app.lifecycle.elect import IDLE, LOCK, SHARD, STATEMENT, Fence
from scheduler_app.store import jobs as job_store
from scheduler_app.store import record as store
from scheduler_app.store import term as term_store

ORPHANS: Final = 500


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
        written = write_batch(due, now or moment, fence.epoch if fence else None)
        done = _summary(written, full=len(due) == size, now=now)
    _announce(written, done)
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


def _summary(written: Batch, *, full: bool, now: datetime | None) -> Recorded:
    clock, cursor = job_store.next_wake()
    wait = None if cursor is None else (cursor - (now or clock)).total_seconds()
    moved = bool(written.cursors or written.faults)
    more = moved and (written.more or full)
    return Recorded(
        runs=written.inserted,
        skipped=written.skipped,
        quarantined=len(written.faults),
        more=more,
        locked=written.deferred or (not more and cursor is not None and cursor <= written.now),
        wait=wait,
    )


def _announce(written: Batch, done: Recorded) -> None:
    if done.runs or done.skipped:
        emit("run.recorded", runs=done.runs, skipped=done.skipped, jobs=len(written.cursors))
    for job, reason in written.faults.items():
        emit("job.quarantined", job=job, reason=reason)
