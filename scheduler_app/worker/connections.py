"""Database connections of pool children: kept from task to task, and put away as soon as one is not sound.

Celery would close all of them around every task, which costs a new session each time; kept as they are, one task that
leaves a transaction open, or one lost session, would spoil every later task of the child. So each is looked at before
a task (has the server hung up?) and after it (is it idle, in autocommit, and usable?).
What would break it: a task that changes its session (`SET search_path`) and does not change it back.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
from celery import signals
from django.db import connections
from psycopg.pq import TransactionStatus


def watch() -> None:
    """Look at the connections around every task of this process, ours and ordinary ones."""
    signals.task_prerun.connect(before_task, weak=False, dispatch_uid="everyslot.connections")
    signals.task_postrun.connect(after_task, weak=False, dispatch_uid="everyslot.connections")


def before_task(sender: Any = None, **_: Any) -> None:
    """Put away what the server has closed meanwhile, so that no attempt is lost to it."""
    for wrapper in _open_ones(sender):
        if wrapper.connection.closed or (_has_something_to_say(wrapper.connection) and not wrapper.is_usable()):
            _put_away(wrapper)


def after_task(sender: Any = None, **_: Any) -> None:
    """Put away what the task has left in a transaction, out of autocommit, or broken."""
    for wrapper in _open_ones(sender):
        if _is_dirty(wrapper) or (wrapper.errors_occurred and not wrapper.is_usable()):
            _put_away(wrapper)
        else:
            wrapper.errors_occurred = False


def _open_ones(task: Any) -> Iterator[Any]:
    """The open sessions of this thread with PostgreSQL; none for an eager task, which works on its caller's."""
    if not getattr(getattr(task, "request", None), "is_eager", False):
        wrappers = connections.all(initialized_only=True)
        yield from [each for each in wrappers if each.vendor == "postgresql" and each.connection is not None]


def _has_something_to_say(raw: Any) -> bool:
    """Whether the server has sent something to an idle session: a notice, or its end. Asking is one system call."""
    poll = select.poll()
    poll.register(raw.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _is_dirty(wrapper: Any) -> bool:
    return (
        wrapper.in_atomic_block
        or wrapper.autocommit != wrapper.settings_dict["AUTOCOMMIT"]
        or wrapper.connection.info.transaction_status != TransactionStatus.IDLE
    )


def _put_away(wrapper: Any) -> None:
    """End the session and forget the wrapper: the next use makes another one, which knows of no open block."""
    with suppress(psycopg.Error):
        wrapper.connection.close()
    del connections[wrapper.alias]
