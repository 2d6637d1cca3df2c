"""The transport on Kombu's event loop (Celery's prefork worker).

A turn of the loop is: timers, `on_tick`, poll, callbacks. Reading, delivering and writing happen in `on_tick`. The
poll's timeout is computed before `on_tick`, so whatever must be done earlier than the next event goes through the
waker: it ends the poll, and its callback sets the timer in time for the next turn.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from scheduler_app.transport.transport import Transport
    from scheduler_app.transport.waker import Waker


class EventLoopLink:
    """One transport's entries in one event loop."""

    def __init__(self, transport: Transport, loop: Any) -> None:
        self._transport = transport
        self._loop = loop
        self._thread: int | None = None
        self._descriptor: int | None = None
        self._waker: Waker | None = None
        self._timer_set = False
        self._poll = loop.call_repeatedly(transport.polling_interval, self._on_poll)
        loop.on_tick.add(self._on_tick)

    def is_turning(self) -> bool:
        """Whether the caller runs inside the loop, so that a tick follows before the loop can sleep."""
        return threading.get_ident() == self._thread

    def detach(self) -> None:
        """Leave the loop, before the descriptors are closed and their numbers used again."""
        self._poll.cancel()
        self._loop.on_tick.discard(self._on_tick)
        for descriptor in (self._descriptor, self._waker.fileno() if self._waker is not None else None):
            if descriptor is not None and descriptor in self._loop.readers:
                self._loop.remove_reader(descriptor)
        self._descriptor = self._waker = self._thread = None

    def _on_tick(self) -> None:
        transport = self._transport
        if transport.closed:
            self.detach()
            raise psycopg.OperationalError("the connection to PostgreSQL is lost")
        self._watch()
        if transport.due() == 0:
            transport.serve()
        transport.deliver_all()
        wait = transport.due()
        if wait == 0 or (wait is not None and not self._timer_set):
            self._transport.waker.wake()

    def _watch(self) -> None:
        """Have the loop watch our sockets; a loop that was reset has forgotten them."""
        readers = self._loop.readers
        self._thread = threading.get_ident()
        if self._descriptor not in readers:
            self._descriptor = self._transport.session.fileno()
            self._loop.add_reader(self._descriptor, self._transport.take_notices)
        waker = self._transport.waker
        if waker is not self._waker or waker.fileno() not in readers:
            self._waker = waker
            self._loop.add_reader(waker, self._on_wake)

    def _on_poll(self) -> None:
        if not self._transport.closed:
            self._transport.take_notices()

    def _on_wake(self) -> None:
        """Something is gathered: make sure that the loop turns when it is due."""
        self._transport.waker.drain()
        wait = self._transport.due()
        if wait and not self._timer_set:
            self._timer_set = True
            self._loop.call_later(wait, self._on_due)

    def _on_due(self) -> None:
        self._timer_set = False
