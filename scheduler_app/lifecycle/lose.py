"""Lose: end the attempts of a worker that is gone, so that their runs go on elsewhere.

Compare-and-set under each attempt's fence: a finish that committed first wins, and one that comes later is void. The
death of a worker says little about the run, so the first few cost it no attempt; a run that kills worker after worker
pays for the later ones and is dead in the end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

from django.db import DataError, transaction

from scheduler_app.core.budget import TimeBudget
from scheduler_app.core.limits import WORKER_LOSSES_FREE
from scheduler_app.core.outcome import Way, settle
from scheduler_app.core.retry import resolve
from scheduler_app.instrument import emit
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.claim import write, write_apart
from scheduler_app.store.keep import stop_worker
from scheduler_app.store.work import Finish, Running, running_of_worker

BATCH = 500


def lose_worker(worker: UUID, reason: str, way: Way = Way.WORKER_LOST) -> int:
    """Mark the worker as stopped and end all its running attempts; how many ended.

    The row is stopped first: from then on the worker's own keeper sees no row and stops work.
    """
    with transaction.atomic():
        stop_worker(worker, reason)
    ended = 0
    while running := running_of_worker(worker, BATCH):
        done = lose_attempts(worker, running, reason, way)
        ended += done
        if not done:
            break
    emit("worker.lost", worker=worker, reason=reason, attempts=ended)
    return ended


def lose_attempts(worker: UUID, running: Sequence[Running], reason: str, way: Way = Way.WORKER_LOST) -> int:
    """End these attempts of a worker as lost; how many were still the current ones."""
    finishes = [_finish(worker, each, reason, way) for each in running]
    try:
        return len(write(worker, finishes, []).done)
    except DataError as error:  # one row that PostgreSQL refuses does not keep its neighbours under a dead worker
        return len(write_apart(worker, finishes, [], str(error)).done)


def lose_runs(worker: UUID, runs: Sequence[UUID], reason: str, way: Way = Way.WORKER_LOST) -> int:
    """End the attempts that run under a worker's name for these runs; how many were still the current ones."""
    wanted = set(runs)
    return lose_attempts(worker, [r for r in running_of_worker(worker) if r.run_id in wanted], reason, way)


def _finish(worker: UUID, running: Running, reason: str, way: Way) -> Finish:
    options = catalog.find(running.task)
    policy = resolve(running.job_retry, *([options.retry] if options else []))
    budget = options.budget if options else TimeBudget()
    ending = settle(
        way,
        attempt=running.attempt,
        max_attempts=running.max_attempts,
        policy=policy,
        uniform=random.uniform,
        free=running.worker_losses < WORKER_LOSSES_FREE,
        retry_left=budget.retry_left(running.elapsed),
        error=f"attempt lost: {reason}",
    )
    return Finish(running.run_id, running.attempt, worker, ending)
