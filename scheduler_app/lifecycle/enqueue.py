"""Enqueue: a run from code, in the caller's own transaction. Row and message exist if and only if it commits.

The row is inserted already marked as dispatched and published by the caller's own process after commit, all runs of
one transaction in one window of confirms. A caller that dies between commit and publish leaves a marked row without a
message: the dispatcher publishes it again when it has been silent for too long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, connections, transaction

from scheduler_app.broker.publisher import publisher
from scheduler_app.conf import conf
from scheduler_app.core.errors import InvalidDefinition, LostGround
from scheduler_app.core.limits import DELAY_MOST, PRIORITY_DEFAULT, TIME_LIMIT_DEFAULT
from scheduler_app.core.message import Hint
from scheduler_app.core.options import TaskOptions
from scheduler_app.core.payload import encode_arguments
from scheduler_app.core.retry import RetryOverrides, resolve
from scheduler_app.core.text import unstorable_string
from scheduler_app.instrument import emit
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.rules import RULES, is_storable
from scheduler_app.models import Job, JobRun
from scheduler_app.models.ids import new_id
from scheduler_app.store.enqueue import (
    NewRun,
    existing_runs,
    find_by_request_key,
    insert_runs,
    notify_runs,
    unmark_runs,
)

KEY_LENGTH = 255


def enqueue(
    task: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    run_id: UUID | None = None,
    job: Job | None = None,
    trigger: str = "code",
    triggered_by: str = "",
    queue: str | None = None,
    priority: int | None = None,
    run_after: datetime | None = None,
    countdown: float | None = None,
    expires_at: datetime | None = None,
    request_key: str = "",
    concurrency_key: str = "",
    ordering_key: str = "",
    canvas: dict[str, Any] | None = None,
    max_attempts: int | None = None,
    time_limit: int | None = None,
) -> UUID:
    """Insert one run and publish it after commit; its id comes back.

    `countdown` is seconds, `run_after` an aware instant; either delays the run in the database. With a `request_key`
    that is already known for this task, the id of the run that has it comes back and nothing is added.
    Raises InvalidDefinition (field, reason) for bad input, LostGround if only another database has a transaction open.
    """
    _refuse_foreign_transaction()
    new = new_run(
        task,
        args,
        kwargs,
        run_id=run_id,
        job=job,
        trigger=trigger,
        triggered_by=triggered_by,
        queue=queue,
        priority=priority,
        run_after=run_after,
        countdown=countdown,
        expires_at=expires_at,
        request_key=request_key,
        concurrency_key=concurrency_key,
        ordering_key=ordering_key,
        canvas=canvas,
        max_attempts=max_attempts,
        time_limit=time_limit,
    )
    if new.id not in insert_runs([new]):
        known = find_by_request_key(task, request_key) if request_key else None
        if known is None and run_id is None:
            raise InvalidDefinition("scheduled_for", "this job already has a run for this very instant")
        if known is None:
            _refuse_id_of_another_task(new)
        return known or new.id
    emit("run.enqueued", run=new.id, task=task)
    if new.marked:
        _publish_after_commit(Hint(new.id, task, 0, new.queue, new.priority))
    elif countdown is not None and countdown < conf().loop:
        transaction.on_commit(notify_runs, robust=True)
    return new.id


def new_run(
    task: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    run_id: UUID | None = None,
    job: Job | None = None,
    trigger: str = "code",
    triggered_by: str = "",
    queue: str | None = None,
    priority: int | None = None,
    run_after: datetime | None = None,
    countdown: float | None = None,
    expires_at: datetime | None = None,
    request_key: str = "",
    concurrency_key: str = "",
    ordering_key: str = "",
    canvas: dict[str, Any] | None = None,
    max_attempts: int | None = None,
    time_limit: int | None = None,
    must_fit: bool = True,
    declared: TaskOptions | None = None,
) -> NewRun:
    """The checked row of a run to come: what the caller says wins over the job, the job over the task.

    `declared` stands in for a task that is not known here.

    Without `must_fit`, arguments that cannot call the task are let through: the run then ends dead with the reason,
    which is how a successor in a chain shows that it got what it cannot take.
    """
    options = catalog.find(task) or declared
    if options is None:
        raise InvalidDefinition("task", f"{task!r} is not a durable task known here")
    if must_fit and (why := options.misfit(args, kwargs)):
        raise InvalidDefinition("payload", f"does not fit {task}{options.signature}: {why}")
    of_job = RetryOverrides(job.max_attempts) if job else RetryOverrides()
    attempts = resolve(RetryOverrides(max_attempts), of_job, options.retry).max_attempts
    limit = _first(time_limit, job.time_limit if job else None, options.time_limit, TIME_LIMIT_DEFAULT)
    chosen_queue = _first(queue, job.queue if job else None, options.queue)
    chosen_priority = _first(priority, job.priority if job else None, options.priority, PRIORITY_DEFAULT)
    _check(max_attempts=attempts, time_limit=limit, queue=chosen_queue, priority=chosen_priority)
    _check_keys(request_key=request_key, concurrency_key=concurrency_key, ordering_key=ordering_key)
    _check_delay(countdown)
    _check_instants(run_after=run_after, expires_at=expires_at)
    delayed = run_after is not None or bool(countdown and countdown > 0)
    return NewRun(
        id=run_id or new_id(),
        task=task,
        args=encode_arguments("args", list(args)),
        payload=encode_arguments("payload", dict(kwargs)),
        max_attempts=attempts,
        time_limit=limit,
        queue=chosen_queue,
        priority=chosen_priority,
        marked=not delayed,
        trigger=trigger,
        triggered_by=triggered_by,
        countdown=max(0.0, countdown or 0.0),
        run_after=run_after,
        job_id=job.pk if job else None,
        job_version=job.version if job else None,
        request_key=request_key,
        concurrency_key=concurrency_key,
        ordering_key=ordering_key,
        expires_at=expires_at,
        starting_deadline=job.starting_deadline if job else options.starting_deadline,
        canvas=encode_arguments("canvas", canvas) if canvas else None,
    )


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _check(**chosen: Any) -> None:
    """The same rules, in the same words, as for a job's fields."""
    for field, value in chosen.items():
        if why := RULES[field](value):
            raise InvalidDefinition(field, why)


def _check_keys(**keys: Any) -> None:
    for field, value in keys.items():
        if not isinstance(value, str) or len(value) > KEY_LENGTH:
            raise InvalidDefinition(field, f"must be text of at most {KEY_LENGTH} characters")
        if why := unstorable_string(value):
            raise InvalidDefinition(field, why)


def _check_delay(countdown: float | None) -> None:
    if countdown is not None and not countdown <= DELAY_MOST:  # true of NaN as well
        raise InvalidDefinition("countdown", f"must be a number of seconds, {DELAY_MOST:.0f} at most")


def _check_instants(**instants: datetime | None) -> None:
    for field, instant in instants.items():
        if instant is not None and not is_storable(instant):
            raise InvalidDefinition(field, "lies outside the years 1 to 9998")


def _refuse_id_of_another_task(new: NewRun) -> None:
    task = JobRun.objects.filter(pk=new.id).values_list("task", flat=True).first()
    if task not in (None, new.task):
        raise InvalidDefinition("task_id", f"{new.id} is the id of a run of {task}")


def _refuse_foreign_transaction() -> None:
    if connection.in_atomic_block:
        return
    for alias in connections:
        other = connections[alias]
        if other is not connection and other.in_atomic_block:
            raise LostGround(
                f"a transaction is open on the database {alias!r} only; runs live in {connection.alias!r} and would "
                f"not roll back with it. Open transaction.atomic() on {connection.alias!r} around the call."
            )


def _publish_after_commit(hint: Hint) -> None:
    if not connection.in_atomic_block:
        _publish([hint])
        return
    outbox: list[Hint] = connection.__dict__.setdefault("everyslot_outbox", [])
    if not connection.run_on_commit:
        outbox.clear()  # left by a transaction that rolled back
    outbox.append(hint)
    # One callback a run, so that a savepoint that rolls back takes its own away; the first that fires publishes
    # every run of the transaction that is there, in one window of confirms.
    transaction.on_commit(lambda: _publish_outbox(outbox), robust=True)


def _publish_outbox(outbox: list[Hint]) -> None:
    hints, outbox[:] = list(outbox), []
    if len(hints) > 1:
        there = existing_runs([hint.run_id for hint in hints])
        hints = [hint for hint in hints if hint.run_id in there]
    if hints:
        _publish(hints)


def _publish(hints: Sequence[Hint]) -> None:
    confirmed = publisher().publish(hints)
    missing = [hint.run_id for hint in hints if hint.run_id not in confirmed]
    if missing:
        unmark_runs(missing)
        emit("run.unpublished", runs=missing)
