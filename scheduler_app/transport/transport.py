"""Kombu's transport on PostgreSQL: one session a connection, its channels, and when to read and to write.

Guaranteed: acknowledgements of one turn are written in one statement, together with the next read where there is one,
and in any case before the connection closes. A lost session raises psycopg's OperationalError from whatever touches it
next; that is one of `connection_errors`, so Celery connects anew and PostgreSQL delivers again.
"""

from __future__ import annotations

import select
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import psycopg
from kombu.transport import virtual

from scheduler_app.transport import codec, declarations, statements
from scheduler_app.transport.channel import Channel as PostgresChannel
from scheduler_app.transport.codec import Delivery
from scheduler_app.transport.errors import LeaseLost
from scheduler_app.transport.eventloop import EventLoopLink
from scheduler_app.transport.keeper import Keeper
from scheduler_app.transport.routing import masked, notice_channel
from scheduler_app.transport.session import Session
from scheduler_app.transport.waker import Waker

LEASE = 60.0
SWEEP = 5.0
POLL = 1.0
GATHER = 0.003
READ_BATCH = 100
DELIVERY_LIMIT = 100


class Transport(virtual.Transport):
    """`transport_options`: `lease`, `sweep_interval`, `polling_interval`, `gather` (seconds), `read_batch`
    (messages read at once where no prefetch limits it), `delivery_limit` (where a queue has no x-delivery-limit)."""

    Channel = PostgresChannel
    can_parse_url = True
    driver_type = "postgresql"
    driver_name = "psycopg"
    polling_interval = POLL
    connection_errors = (*virtual.Transport.connection_errors, psycopg.OperationalError, psycopg.InterfaceError)
    channel_errors = virtual.Transport.channel_errors
    implements = virtual.Transport.implements.extend(
        asynchronous=True, heartbeats=False, exchange_type=frozenset(["direct", "topic", "fanout"])
    )
    channels: list[PostgresChannel]  # type: ignore[assignment, unused-ignore]

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        options = client.transport_options
        self.lease = float(options.get("lease", LEASE))
        self.sweep_interval = float(options.get("sweep_interval", min(SWEEP, self.lease / 4)))
        self.gather = float(options.get("gather", GATHER))
        self.read_batch = int(options.get("read_batch", READ_BATCH))
        self.delivery_limit = int(options.get("delivery_limit", DELIVERY_LIMIT))
        self._session: Session | None = None
        self._keeper: Keeper | None = None
        self._acks: list[int] = []
        self._acks_since = 0.0
        self._polled_at = 0.0
        self._waker: Waker | None = None
        self._link: EventLoopLink | None = None

    # -- the connection

    def establish_connection(self) -> Transport:
        """Connect. Raises `psycopg.OperationalError` (`TablesMissing` before the migration)."""
        client: Any = self.client
        self._session = Session(client.hostname, client.connect_timeout)
        self._keeper = None
        self._acks.clear()
        super().establish_connection()
        return self

    def verify_connection(self, connection: Any) -> bool:
        return not self.closed

    def close_connection(self, connection: Any) -> None:
        """Write what is gathered, give back what is held, end the session."""
        try:
            super().close_connection(connection)
            if self._keeper is not None:
                self._keeper.release()
        finally:
            self._end()

    def _collect(self, connection: Any) -> None:
        """Let go of a connection that has failed; what it held returns at once if the server still answers."""
        with suppress(*self.connection_errors):
            self.close_connection(connection)

    def _end(self) -> None:
        if self._link is not None:
            self._link.detach()
        if self._keeper is not None:
            self._keeper.stop()
        if self._session is not None:
            self._session.close()
        if self._waker is not None:
            self._waker.close()
            self._waker = None

    @property
    def closed(self) -> bool:
        return self._session is None or self._session.closed

    @property
    def session(self) -> Session:
        if self._session is None:
            raise psycopg.OperationalError("not connected")
        return self._session

    @property
    def keeper(self) -> Keeper:
        if self._keeper is None:
            client: Any = self.client
            self._keeper = Keeper(
                self.session,
                address=client.hostname,
                lease=self.lease,
                sweep=self.sweep_interval,
                delivery_limit=self.delivery_limit,
                on_lost=self.wake,
            )
        return self._keeper

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        prefix = "" if uri.startswith("pgq:") else "pgq+"
        return prefix + (uri if include_password else masked(uri, mask))

    def driver_version(self) -> str:
        return psycopg.__version__

    # -- what channels ask for

    def subscribe(self) -> None:
        """Hold a lease on the queues of all consumers and listen to them, as long as there is something to hold."""
        queues = {s.queue for channel in self.channels for s in channel.subscriptions.values()}
        if queues or self._acks or any(channel.held for channel in self.channels):
            self.keeper.hold(queues)
        else:
            self.keeper.release()

    def retire(self, queues: Sequence[str]) -> None:
        """Delete those of the queues that are auto-delete and have no consumer left."""
        retired = self.session.rows(declarations.RETIRE_QUEUES, {"names": list(queues)})
        if retired:
            self.session.count(declarations.DELETE_MESSAGES, {"names": [name for (name,) in retired]})

    def notify(self, queues: Iterable[str]) -> None:
        self.keeper.notify(queues)

    def read(self, queues: Sequence[str], count: int, *, no_ack: bool) -> list[Delivery]:
        """Take up to `count` messages, in turn from the queues; gathered acknowledgements go along."""
        if no_ack:
            rows = self.session.rows(statements.TAKE, {"queues": list(queues), "count": count})
            holder = None
        else:
            holder = self.keeper.holder or self.keeper.hold(())
            with self.session.lock:
                acks = list(self._acks)
                rows = self.session.rows(
                    statements.READ,
                    {"queues": list(queues), "count": count, "acks": acks, "holder": holder},
                )
                del self._acks[: len(acks)]
        return [codec.delivery(row, holder) for row in sorted(rows)]

    def acknowledge(self, deliveries: Iterable[Delivery]) -> None:
        """Gather acknowledgements; what was delivered under an earlier session is not ours to acknowledge any more."""
        ids = self._ours(deliveries)
        if ids:
            with self.session.lock:
                if not self._acks:
                    self._acks_since = monotonic()
                self._acks.extend(ids)
            self.wake()

    def flush(self) -> None:
        """Write the gathered acknowledgements."""
        with self.session.lock:
            if self._acks:
                acks = list(self._acks)
                self.session.count(statements.ACKNOWLEDGE, {"acks": acks, "holder": self.keeper.holder})
                del self._acks[: len(acks)]

    def give_back(self, deliveries: Iterable[Delivery]) -> None:
        ids = self._ours(deliveries)
        if ids:
            self.keeper.give_back(ids)
            self.wake()

    def reject(self, deliveries: Iterable[Delivery]) -> None:
        ids = self._ours(deliveries)
        if ids:
            self.keeper.reject(ids)
            self.wake()

    def _ours(self, deliveries: Iterable[Delivery]) -> list[int]:
        holder = self._keeper.holder if self._keeper is not None else None
        return [found.id for found in deliveries if holder is not None and found.holder == holder]

    def feed(self, channel: PostgresChannel) -> None:
        """The channel may find something to read: see to it soon."""
        channel.hungry = True
        self.wake()

    # -- reading and delivering

    def due(self) -> float | None:
        """Seconds until gathered work must be done (0 is now); None is nothing to do."""
        waits = [self._acks_since + self.gather - monotonic()] if self._acks else []
        for channel in self.channels:
            free = channel.capacity() if channel.hungry else 0
            if free:
                # A nearly full channel is refilled in one read with its next acknowledgements.
                waits.append(0.0 if not self._acks or 2 * free >= (channel.qos.prefetch_count or free) else waits[0])
        return max(0.0, min(waits)) if waits else None

    def serve(self) -> None:
        """Read for every channel that may find something; write the acknowledgements that no read took along."""
        if self._keeper is not None and self._keeper.lost:
            raise LeaseLost(f"no sign of life within the lease of {self.lease:g} s; the messages went to others")
        for channel in list(self.channels):
            count = channel.capacity() if channel.hungry else 0
            if count:
                channel.fill(count)
        self.flush()

    def take_notices(self) -> None:
        """See which queues were notified; every `polling_interval` seconds, suppose that all were."""
        noticed = self.session.take_notices()
        now = monotonic()
        everything = now - self._polled_at >= (self.polling_interval or POLL)
        if everything:
            self._polled_at = now
        for channel in self.channels:
            if channel.subscriptions and (
                everything or any(notice_channel(s.queue) in noticed for s in channel.subscriptions.values())
            ):
                channel.hungry = True

    def deliver_all(self) -> None:
        """Hand over everything that was read."""
        for channel in list(self.channels):
            while channel.deliver_one():
                pass

    def drain_events(  # type: ignore[override, unused-ignore]
        self, connection: Any, timeout: float | None = None
    ) -> None:
        """Deliver one message. Raises `socket.timeout` if none comes within `timeout` seconds."""
        until = None if timeout is None else monotonic() + timeout
        while not any(channel.deliver_one() for channel in list(self.channels)):
            self.take_notices()
            wait = self.due()
            if wait is None or wait > 0:
                left = self.polling_interval if until is None else until - monotonic()
                if left is None or left <= 0:
                    self.flush()
                    raise TimeoutError("no message in time")
                self._wait(min(left, self.polling_interval or POLL, POLL if wait is None else wait))
            if self.due() == 0:
                self.serve()

    def _wait(self, seconds: float) -> None:
        """Until PostgreSQL sends something, another thread wakes us, or the time is over."""
        poll = select.poll()
        poll.register(self.session.fileno(), select.POLLIN)
        poll.register(self.waker, select.POLLIN)
        if any(descriptor == self.waker.fileno() for descriptor, _event in poll.poll(seconds * 1000)):
            self.waker.drain()

    @property
    def waker(self) -> Waker:
        if self._waker is None:
            self._waker = Waker()
        return self._waker

    def wake(self) -> None:
        """Let whoever waits for this connection look again; from any thread."""
        if self._waker is not None and not (self._link is not None and self._link.is_turning()):
            self._waker.wake()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Serve from Celery's event loop: LISTEN socket, waker, and a poll every `polling_interval` seconds."""
        if self._link is not None:
            self._link.detach()
        self._link = EventLoopLink(self, loop)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        if self._link is not None:
            self._link.detach()
            self._link = None
