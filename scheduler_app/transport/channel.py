"""An AMQP channel on PostgreSQL: publishing, consuming, settling (declaring is in declaring.py).

Guaranteed: a message to a declared queue is committed when a publish returns; a delivered message stays in its table,
held by this connection's lease, until its acknowledgement is written. Acknowledgements are gathered by the transport
and written in sets; closing the channel writes them and gives back what was not acknowledged.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amqp.exceptions import NotFound, RecoverableConnectionError
from kombu.utils.uuid import uuid

from scheduler_app.transport import codec, statements
from scheduler_app.transport.codec import Delivery, Outgoing
from scheduler_app.transport.declaring import DeclaringChannel
from scheduler_app.transport.errors import UnroutableMessage
from scheduler_app.transport.unacked import Unacked

if TYPE_CHECKING:
    from scheduler_app.transport.transport import Transport

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subscription:
    """One consumer of the channel."""

    queue: str
    no_ack: bool
    callback: Callable[[Any], Any]


def _ignore(_message: Any) -> None:
    """What a consumer without a callback does."""


class Channel(DeclaringChannel):
    """One channel of a connection; `connection` is the transport, as in all of Kombu's virtual transports."""

    QoS = Unacked  # type: ignore[assignment, unused-ignore]
    supports_fanout = True
    do_restore = False
    connection: Transport
    closed: bool

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.subscriptions: dict[str, Subscription] = {}
        self.buffer: deque[Delivery] = deque()
        self.hungry = False
        self._turn = 0

    # -- publishing

    def basic_publish(
        self,
        message: dict[str, Any],
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = False,
        **kwargs: Any,
    ) -> None:
        """Publish one message. Raises `UnroutableMessage` if `mandatory` and no queue is bound to its address.

        Without `mandatory` an unroutable message is dropped, as AMQP says; a persistent one not without a warning.
        """
        try:
            self._store([codec.outgoing(exchange, routing_key, message)])
        except UnroutableMessage as error:
            if mandatory:
                raise
            if message["properties"].get("delivery_mode") == 2:
                logger.warning("dropped: %s", error)

    def publish_many(self, items: Sequence[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Publish (exchange, routing key, message) in one statement; all are committed when it returns.

        A message is Kombu's dict as `prepare_message` makes it, its body encoded or not. Raises `UnroutableMessage`
        naming those that reach no queue: the others of the call are committed all the same.
        """
        if items:
            self._store([codec.outgoing(*item) for item in items])

    def _store(self, messages: Sequence[Outgoing]) -> None:
        rows = self._rows(
            statements.PUBLISH,
            exchanges=[message.exchange for message in messages],
            routing_keys=[message.routing_key for message in messages],
            priorities=[message.priority for message in messages],
            ttls=[message.ttl for message in messages],
            payloads=[message.payload for message in messages],
        )
        self.connection.notify(queue for _exchange, _key, queue, listened in rows if listened)
        nowhere = {(exchange, key) for exchange, key, queue, _listened in rows if queue is None}
        if nowhere:
            raise UnroutableMessage(
                [
                    (index, message.exchange, message.routing_key)
                    for index, message in enumerate(messages)
                    if (message.exchange, message.routing_key) in nowhere
                ]
            )

    # -- consuming

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[..., Any] | None,
        consumer_tag: str | None = None,
        **kwargs: Any,
    ) -> str:
        """Start a consumer and return its tag. Raises `NotFound` for a queue that is not declared."""
        if not self._has_queue(queue):
            raise NotFound(f"NOT_FOUND - no queue {queue!r}", (60, 20), "Channel.basic_consume")
        tag = consumer_tag or f"ctag-{uuid()}"
        self.subscriptions[tag] = Subscription(queue, bool(no_ack), callback or _ignore)
        self._consumers.add(tag)
        self.connection.subscribe()
        self.connection.feed(self)
        return tag

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer. What it was not handed yet returns; an auto-delete queue leaves with its last consumer."""
        gone = self.subscriptions.pop(consumer_tag, None)
        self._consumers.discard(consumer_tag)
        if gone is None:
            return
        unwanted = [found for found in self.buffer if not self._consumer_of(found.queue)]
        self.buffer = deque(found for found in self.buffer if self._consumer_of(found.queue))
        self.connection.give_back(unwanted)
        self.connection.subscribe()
        self.connection.retire([gone.queue])

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """One message, or None."""
        found = self.connection.read([queue], 1, no_ack=no_ack)
        return self._message(found[0]) if found else None

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Limit the unacknowledged messages of this channel; 0 is no limit. `prefetch_size` is not supported."""
        self.qos.prefetch_count = prefetch_count
        self.connection.wake()

    @property
    def held(self) -> int:
        """How many messages this channel holds, handed over or not."""
        return len(self._unacked) + len(self.buffer)

    def capacity(self) -> int:
        """How many messages may be read now."""
        if not self.subscriptions:
            return 0
        free = self.qos.can_consume_max_estimate()
        batch = self.connection.read_batch
        return max(0, (batch if free is None else min(free, batch)) - len(self.buffer))

    def fill(self, count: int) -> None:
        """Read up to `count` messages over all queues of the channel; each read starts with another queue."""
        self.hungry = False
        for no_ack in (False, True):
            queues = sorted({s.queue for s in self.subscriptions.values() if s.no_ack is no_ack})
            if queues:
                self._turn = (self._turn + 1) % len(queues)
                found = self.connection.read(queues[self._turn :] + queues[: self._turn], count, no_ack=no_ack)
                self.buffer.extend(found)
                self.hungry = self.hungry or len(found) == count

    def deliver_one(self) -> bool:
        """Hand the oldest message that was read to its consumer; False when there is none."""
        if not self.buffer:
            return False
        found = self.buffer.popleft()
        consumer = self._consumer_of(found.queue)
        if consumer is None:
            self.connection.give_back([found])
        else:
            consumer.callback(self._message(found))
        return True

    def _consumer_of(self, queue: str) -> Subscription | None:
        return next((s for s in self.subscriptions.values() if s.queue == queue), None)

    def _message(self, found: Delivery) -> Any:
        tag = self._unacked.next_tag() if found.holder is None else self._unacked.add(found)
        found.content["properties"]["delivery_tag"] = tag
        return self.Message(found.content, channel=self)

    # -- settling

    def basic_ack(self, delivery_tag: Any, multiple: bool = False) -> None:
        """Acknowledge; written with the others of this turn of the loop, or when the channel closes."""
        self._must_be_open()
        self.connection.acknowledge(self._unacked.settle(delivery_tag, multiple))

    def basic_reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        """Give back (visible at once), or send to the queue's dead-letter exchange; written when it returns."""
        self._must_be_open()
        settled = self._unacked.settle(delivery_tag)
        if requeue:
            self.connection.give_back(settled)
        else:
            self.connection.reject(settled)

    def basic_recover(self, requeue: bool = False) -> None:
        """Give back everything that is unacknowledged."""
        if not requeue:
            raise NotImplementedError("recover without requeue is not supported")
        self.connection.give_back(self._unacked.settle_all())

    def close(self) -> None:
        """Write acknowledgements, give back what is left, cancel consumers. Lost connections lose nothing."""
        if self.closed:
            return
        self.closed = True
        transport = self.connection
        try:
            if not transport.closed:
                transport.flush()
                transport.give_back([*self._unacked.settle_all(), *self.buffer])
                self.buffer.clear()
                for tag in list(self.subscriptions):
                    self.basic_cancel(tag)
        finally:
            self.subscriptions.clear()
            self._consumers.clear()
            transport.close_channel(self)

    def _must_be_open(self) -> None:
        if self.closed or self.connection is None:
            raise RecoverableConnectionError("channel is closed")

    @property
    def _unacked(self) -> Unacked:
        unacked: Any = self.qos
        return unacked
