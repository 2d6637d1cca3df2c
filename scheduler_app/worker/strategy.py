"""Celery's strategy for durable tasks: a message only offers its run to the ledger; the claim brings the arguments."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from celery import signals
from celery.utils.imports import symbol_by_name
from celery.utils.log import get_logger
from celery.worker.request import create_request_cls
from celery.worker.state import task_reserved

from scheduler_app.core.budget import TimeBudget
from scheduler_app.core.message import ATTEMPT_HEADER, read_attempt
from scheduler_app.core.outcome import Way
from scheduler_app.core.payload import decode
from scheduler_app.core.retry import resolve
from scheduler_app.core.text import describe
from scheduler_app.lifecycle import catalog
from scheduler_app.store.work import Claimed, Wanted
from scheduler_app.worker.ledger import Delivery, Ledger
from scheduler_app.worker.request import DurableRequest, over_run_timeout

logger = get_logger(__name__)


class NotAHint(ValueError):
    """A message for a durable task that names no run and attempt."""


def durable(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
    """The handler of messages for one durable task (Celery calls this once a task at start)."""
    ledger: Ledger = consumer.ledger
    make = _request_maker(task, app, consumer, ledger)
    sends_events = consumer.event_dispatcher and consumer.event_dispatcher.enabled and task.send_events

    def on_message(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **_: Any) -> None:
        wanted = read_hint(message.headers)
        connection_errors = consumer.connection_errors

        def start(claim: Claimed, worker: UUID) -> DurableRequest:
            request = make(claim, worker, message, ack, reject)
            signals.task_received.send(sender=consumer, request=request)
            if sends_events:
                consumer.event_dispatcher.send(
                    "task-received",
                    uuid=request.id,
                    name=request.name,
                    args="",
                    kwargs="",
                    root_id=request.root_id,
                    parent_id=request.parent_id,
                    retries=claim.attempt - 1,
                    eta=None,
                    expires=None,
                )
            task_reserved(request)
            return request

        ledger.offer(Delivery(wanted, task.name, start, lambda: ack(logger, connection_errors)))

    return on_message


def read_hint(headers: dict[str, Any]) -> Wanted:
    """The run and attempt that a message names; raises NotAHint."""
    attempt = read_attempt(headers.get(ATTEMPT_HEADER))
    try:
        run_id = UUID(headers["id"])
    except (KeyError, ValueError, AttributeError, TypeError):
        raise NotAHint("the message names no run") from None
    if attempt is None:
        raise NotAHint(f"the message of run {run_id} names no attempt: durable tasks are called with .delay()")
    return Wanted(run_id, attempt)


def _request_maker(task: Any, app: Any, consumer: Any, ledger: Ledger) -> Callable[..., DurableRequest]:
    base = symbol_by_name(task.Request)
    celery_made = create_request_cls(base, task, consumer.pool, consumer.hostname, consumer.event_dispatcher, app=app)
    # Celery's class overrides two methods that are ours; take them back.
    kind = type(
        "DurableRequest",
        (celery_made,),
        {"execute_using_pool": base.execute_using_pool, "on_success": base.on_success},
    )
    options = catalog.find(task.name)
    declared = [options.retry] if options else []
    budget = options.budget if options else TimeBudget()
    long_running = options is not None and options.long_running

    def make(claim: Claimed, worker: UUID, message: Any, ack: Any, reject: Any) -> DurableRequest:
        limit = min(claim.time_limit, budget.attempt_left(claim.elapsed))
        headers = _headers(claim, message.headers, task, worker, limit)
        body, unreadable = _call(claim)
        request: DurableRequest = kind(
            message,
            on_ack=ack,
            on_reject=reject,
            app=app,
            hostname=consumer.hostname,
            eventer=consumer.event_dispatcher,
            task=task,
            connection_errors=consumer.connection_errors,
            body=body,
            headers=headers,
            decoded=True,
            utc=True,
        )
        request.claim, request.claimed = claim, time.monotonic()
        request.worker = worker
        request.policy = resolve(claim.job_retry, *declared)
        request.ledger = ledger
        request.budget, request.limit, request.long_running = budget, limit, long_running
        if unreadable:
            request.refusal = (Way.FAILED, unreadable)
        elif limit <= 0:
            request.refusal = (Way.TIMED_OUT, over_run_timeout(budget))
        return request

    return make


def _call(claim: Claimed) -> tuple[tuple[list[Any], dict[str, Any], dict[str, Any]], str]:
    """What the row says to call, and why that cannot be read if so: one bad row must not end the worker."""
    try:
        args, kwargs = decode(claim.args), decode(claim.payload)
    except Exception as error:  # whatever the decoder of a marked type raises
        return ([], {}, {}), f"its arguments cannot be read: {describe(error)}"
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return ([], {}, {}), "its arguments cannot be read: they are not a list and an object"
    return (args, kwargs, {}), ""


def _headers(claim: Claimed, sent: dict[str, Any], task: Any, worker: UUID, limit: float) -> dict[str, Any]:
    run_id = str(claim.run_id)
    soft = task.soft_time_limit
    return {
        "id": run_id,
        "task": task.name,
        "root_id": sent.get("root_id") or run_id,
        "parent_id": sent.get("parent_id"),
        "retries": claim.attempt - 1,
        "timelimit": [limit, soft if soft and soft < limit else None],
        "ignore_result": True,
        "argsrepr": "",
        "kwargsrepr": "",
        "everyslot": {
            "id": run_id,
            "attempt": claim.attempt,
            "max_attempts": claim.max_attempts,
            "scheduled_for": claim.scheduled_for.isoformat(),
            "started_at": claim.started_at.isoformat(),
            "time_limit": limit,
            "job": claim.job_name,
            "worker": str(worker),
        },
    }
