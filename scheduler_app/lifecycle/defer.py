"""Defer: a run whose task a worker does not know, as during a deploy, waits for one that does.

Guaranteed: compare-and-set on queued and on the attempt, so what another worker has claimed meanwhile goes on there;
the wait is bounded (`unknown_task_wait`), after which the run is dead with the reason, and in sight all the time
(`unknown_since`, `last_error`). A message whose run is of another task, or of no run, is not ours to keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import DataError, transaction

from scheduler_app.conf import conf
from scheduler_app.core.states import Status
from scheduler_app.instrument import emit
from scheduler_app.lifecycle.follow import insert_successors
from scheduler_app.store.defer import Unknown, defer_unknown
from scheduler_app.store.enqueue import notify_runs

__all__ = ["Unknown", "defer", "defer_apart"]


def defer(unknown: Sequence[Unknown], worker: str) -> set[UUID]:
    """Let these runs wait; the runs of which the messages are true, whether or not they still had to wait."""
    with transaction.atomic():
        deferred = defer_unknown(unknown, f"{worker} does not know this task", conf().unknown_task_wait)
        followers = insert_successors([each for each in deferred.changed if each.status is Status.DEAD])
        if followers or any(each.released for each in deferred.changed):
            transaction.on_commit(notify_runs, robust=True)
    for each in deferred.changed:
        emit("run.unknown_task", run=each.run_id, status=each.status, worker=worker)
    return deferred.real


def defer_apart(unknown: Sequence[Unknown], worker: str) -> set[UUID]:
    """The same one by one, for a batch of which PostgreSQL refused a value: that message is no run's."""
    return {run_id for each in unknown for run_id in _defer_one(each, worker)}


def _defer_one(unknown: Unknown, worker: str) -> set[UUID]:
    try:
        return defer([unknown], worker)
    except DataError:
        return set()
