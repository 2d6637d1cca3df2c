"""Follow: the successors of a run that ended, inserted in the transaction that ends it.

A durable successor is a row before it is a message, so a worker killed between finish and acknowledgement loses no
link of a chain. A successor that is an ordinary Celery task has no row; it is sent after commit, as Celery would.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any
from uuid import UUID

from celery import current_app
from django.db import transaction

from scheduler_app.core.canvas import Successor, after_death, after_success
from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.core.limits import TIME_LIMIT_DEFAULT
from scheduler_app.core.options import TaskOptions
from scheduler_app.core.payload import decode
from scheduler_app.core.retry import RetryOverrides, resolve
from scheduler_app.core.states import Status
from scheduler_app.core.text import describe, is_note, storable
from scheduler_app.instrument import emit
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.enqueue import new_run
from scheduler_app.models.ids import new_id
from scheduler_app.store.enqueue import NewRun, insert_runs, refuse_runs
from scheduler_app.store.work import Done, Finish

ANY_ARGUMENTS = Signature([Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)])
logger = logging.getLogger("everyslot")


def insert_successors(done: Sequence[Done], finishes: Sequence[Finish] = ()) -> int:
    """Insert what follows these endings, in the open transaction; how many rows were added.

    `finishes` hold the results that are passed on; a run that ended without an attempt has none.
    A successor that cannot be made (arguments too large, a queue that is gone) is a dead run with the reason, so that
    a chain never ends without a word.
    """
    results = {finish.run_id: finish.ending.result for finish in finishes}
    new: list[NewRun] = []
    refused: dict[UUID, str] = {}
    for each in done:
        if each.canvas is not None:
            for successor in _successors(each, results.get(each.run_id)):
                _place(each, successor, new, refused)
    inserted = insert_runs(new) if new else set()
    if ours := {run_id: error for run_id, error in refused.items() if run_id in inserted}:
        refuse_runs(ours)  # a run that was there before under the same id is none of ours
    return len(inserted)


def _successors(done: Done, result: str | None) -> list[Successor]:
    canvas = json.loads(done.canvas or "{}") or {}
    try:
        if done.status is Status.SUCCEEDED:
            return after_success(canvas, decode(result) if result is not None else None)
        return after_death(canvas, str(done.run_id)) if done.status is Status.DEAD else []
    except Exception as error:
        # Refused where it enters; what came into the row in another way must not cost the ledger its life.
        emit("run.successor_refused", run=done.run_id, task="", error=str(error))
        logger.exception("what follows run %s cannot be read, and does not follow", done.run_id)
        return []


def _place(done: Done, successor: Successor, new: list[NewRun], refused: dict[UUID, str]) -> None:
    """Add the row of a durable successor; an ordinary task is sent after commit."""
    is_durable = catalog.find(successor.task) is not None or successor.declared is not None
    try:
        if successor.takes_result and is_note(successor.args[0]):
            raise InvalidDefinition("args", "the result to pass on could not be stored")
        if is_durable:
            new.append(_row(done, successor))
        else:
            transaction.on_commit(lambda: _send(successor), robust=True)
    except Exception as error:
        # The predecessor has ended and stays so, and the ledger lives on, whatever a signature holds. No statement
        # ran yet that could have broken the transaction.
        emit("run.successor_refused", run=done.run_id, task=successor.task, error=str(error))
        if not is_durable:
            logger.error("%s, called after run %s, was not sent: %s", successor.task, done.run_id, error)
            return
        row = _bare_row(done, successor)
        new.append(row)
        refused[row.id] = storable(f"refused as the successor of run {done.run_id}: {describe(error)}")
        dead = replace(done, run_id=row.id, status=Status.DEAD, canvas=json.dumps(successor.canvas))
        for follower in _successors(dead, None):
            _place(dead, follower, new, refused)


def _bare_row(done: Done, successor: Successor) -> NewRun:
    """What can always be said of a successor: its task, its id if that is one, and whom it follows. No rule applies."""
    return NewRun(
        id=_uuid(successor.options),
        task=successor.task,
        args="[]",
        payload="{}",
        max_attempts=1,
        time_limit=TIME_LIMIT_DEFAULT,
        queue="default",
        priority=done.priority,
        marked=False,
        triggered_by=f"run {done.run_id}",
    )


def _uuid(options: Mapping[str, Any]) -> UUID:
    try:
        return UUID(str(options["task_id"]))
    except (KeyError, ValueError):
        return new_id()


def _row(done: Done, successor: Successor) -> NewRun:
    options = successor.options
    task_id = options.get("task_id")
    countdown = options.get("countdown")
    row = new_run(
        successor.task,
        successor.args,
        successor.kwargs,
        run_id=UUID(task_id) if task_id else new_id(),
        queue=options.get("queue"),
        priority=options.get("priority", done.priority),
        countdown=countdown,
        canvas=successor.canvas,
        triggered_by=f"run {done.run_id}",
        must_fit=False,
        declared=_declared(successor),
    )
    return replace(row, marked=False)  # the dispatcher takes it: this process may die right after the commit


def durable_note(task: str) -> dict[str, Any] | None:
    """What a worker needs to know of a durable task that it does not know, to make a run of it."""
    options = catalog.find(task)
    if options is None:
        return None
    return {
        "queue": options.queue,
        "max_attempts": resolve(options.retry).max_attempts,
        "time_limit": options.time_limit,
        "starting_deadline": options.starting_deadline,
    }


def _declared(successor: Successor) -> TaskOptions | None:
    """The task as its caller knew it; its arguments are judged by the worker that knows it."""
    note = successor.declared
    if note is None:
        return None
    return TaskOptions(
        successor.task,
        ANY_ARGUMENTS,
        queue=note["queue"],
        retry=RetryOverrides(note["max_attempts"]),
        time_limit=note["time_limit"],
        starting_deadline=note["starting_deadline"],
    )


def _send(successor: Successor) -> None:
    canvas = successor.canvas or {}
    options = {key: value for key, value in successor.options.items() if key in ("task_id", "queue", "countdown")}
    current_app.signature(successor.task, successor.args, successor.kwargs).apply_async(
        chain=canvas.get("chain"), link=canvas.get("link"), link_error=canvas.get("link_error"), **options
    )
