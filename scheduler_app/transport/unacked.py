"""What a channel has delivered and not yet settled, and how much more it may take (AMQP's basic.qos)."""

from __future__ import annotations

from itertools import count, takewhile

from scheduler_app.transport.codec import Delivery


class Unacked:
    """Kombu's QoS for this transport. Tags grow, so `multiple` means every tag up to one."""

    def __init__(self, channel: object, prefetch_count: int = 0) -> None:
        self.channel = channel
        self.prefetch_count = prefetch_count
        self._deliveries: dict[int, Delivery] = {}
        self._tags = count(1)

    def __len__(self) -> int:
        return len(self._deliveries)

    def can_consume(self) -> bool:
        return not self.prefetch_count or len(self._deliveries) < self.prefetch_count

    def can_consume_max_estimate(self) -> int | None:
        """How many more may be delivered; None is no limit."""
        return max(self.prefetch_count - len(self._deliveries), 0) if self.prefetch_count else None

    def add(self, delivery: Delivery) -> int:
        """Note a delivery and return its tag."""
        tag = next(self._tags)
        self._deliveries[tag] = delivery
        return tag

    def next_tag(self) -> int:
        """A tag for a message that needs no acknowledgement."""
        return next(self._tags)

    def settle(self, tag: int, multiple: bool = False) -> list[Delivery]:
        """Forget the delivery (or all up to it) and return it; an unknown tag is nothing, as when settled twice."""
        tags = list(takewhile(lambda known: known <= tag, list(self._deliveries))) if multiple else [tag]
        return [found for known in tags if (found := self._deliveries.pop(known, None)) is not None]

    def settle_all(self) -> list[Delivery]:
        """Forget everything and return it."""
        everything, self._deliveries = list(self._deliveries.values()), {}
        return everything
