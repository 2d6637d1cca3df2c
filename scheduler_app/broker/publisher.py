"""Publishing hints: one connection a process, used by one thread at a time, with a bound on every wait.

Guaranteed: `publish` names only runs whose hint a queue has for sure, and never raises for what a broker does. What
it does not name may have arrived all the same; the claim makes a doubled hint harmless. It would break if a forked
child used its parent's socket, so a fork forgets the connection.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from celery import current_app

from scheduler_app.broker.capabilities import Link, link_for
from scheduler_app.broker.topology import dead_queue, work_queue
from scheduler_app.conf import conf
from scheduler_app.core.message import Hint
from scheduler_app.instrument import emit

ANSWER: Final = 5.0  # seconds that a connected broker may take to answer a declaration


class Publisher:
    """Publishes hints to `url`, by default the broker of the Celery app; safe to share between threads."""

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._connection: Any = None
        self._channel: Any = None
        self._link: Link | None = None
        self.answered = True
        """Whether the broker answered everything at the last call: what it did not confirm then, it refused."""

    def publish(self, hints: Sequence[Hint], timeout: float = 5.0) -> frozenset[UUID]:
        """Publish hints; the ids of those that a queue has. Takes about `timeout` seconds at most.

        A connection that was idle may have died unseen, so that its first failure is tried once more on a new one.
        """
        if not hints:
            return frozenset()
        deadline = time.monotonic() + timeout
        confirmed: set[UUID] = set()
        with self._lock:
            for fresh in (self._link is None, True):
                waiting = [hint for hint in hints if hint.run_id not in confirmed]
                found, self.answered, fault = self._try(waiting, deadline)
                confirmed |= found
                if self.answered or fresh or time.monotonic() > deadline:
                    break
        if fault is not None:
            emit("broker.unreachable", error=fault, waiting=len(hints) - len(confirmed))
        return frozenset(confirmed)

    def depth(self, queue: str) -> int | None:
        """Messages that wait in a queue at the broker, unacknowledged ones left out; None if it cannot say."""
        with self._lock:
            try:
                self._open()
                with _bounded(self._connection.connection, ANSWER), self._connection.channel() as channel:
                    return int(channel.queue_declare(queue=queue, passive=True).message_count)
            except Exception as error:
                self._drop()
                emit("broker.unreachable", error=_said(error), waiting=0)
                return None

    def close(self) -> None:
        """Let go of the connection; the next publish opens another."""
        with self._lock:
            self._drop()

    def _try(self, hints: Sequence[Hint], deadline: float) -> tuple[set[UUID], bool, str | None]:
        """(confirmed, whether everything was answered, the fault if there was one)."""
        try:
            confirmed, complete = self._open().publish(hints, deadline)
        except Exception as error:
            # Whatever a driver raises, a broken broker is weather: the rows are safe, and dispatch comes again.
            self._drop()
            return set(), False, _said(error)
        if not complete:
            self._drop()
            return confirmed, False, "the broker did not confirm in time"
        return confirmed, True, None

    def _open(self) -> Link:
        if self._link is None:
            self._connection = current_app.connection_for_write(self._url)
            # Each host once: waiting for a broker that is away is the caller's business, who has other work.
            self._connection.ensure_connection(max_retries=max(0, len(self._connection.alt) - 1))
            with _bounded(self._connection.connection, ANSWER):
                self._channel = self._connection.channel()
                for queue in (*map(work_queue, conf().queues), dead_queue()):
                    queue.bind(self._channel).declare()
                self._link = link_for(self._channel)
        return self._link

    def _drop(self) -> None:
        """Close at once, without a word to a broker that may not answer."""
        connection, channel = self._connection, self._channel
        self._connection = self._channel = self._link = None
        try:
            collapse = getattr(getattr(channel, "connection", None), "collapse", None)
            if collapse is not None:
                collapse()
            if connection is not None:
                connection.release()
        except Exception as error:
            emit("broker.close_failed", error=_said(error))


@contextmanager
def _bounded(connection: Any, seconds: float) -> Iterator[None]:
    """Bound every read and write of a connection, if it is one of AMQP's."""
    having_timeout = getattr(getattr(connection, "transport", None), "having_timeout", None)
    if having_timeout is None:
        yield
        return
    with having_timeout(seconds):
        yield


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


_publisher = Publisher()
_abandoned: list[Publisher] = []


def publisher() -> Publisher:
    """The publisher of this process."""
    return _publisher


def _after_fork() -> None:
    """Forget the parent's connection without closing it: closing would speak on the parent's socket."""
    global _publisher
    _abandoned.append(_publisher)
    _publisher = Publisher()


os.register_at_fork(after_in_child=_after_fork)
