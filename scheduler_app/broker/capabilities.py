"""What the broker behind a connection can do, asked of the channel itself, never of a name in a URL."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from kombu import Producer

from scheduler_app.broker.topology import EXCHANGE
from scheduler_app.broker.windowed import PERSISTENT, WindowedLink
from scheduler_app.core.message import BODY, Hint, headers


class Link(Protocol):
    """A way to publish on one channel."""

    def publish(self, hints: Sequence[Hint], deadline: float) -> tuple[set[UUID], bool]:
        """Publish; the ids that reached a queue for sure, and whether all were answered by the deadline."""


def link_for(channel: Any) -> Link:
    """The best way to publish that this channel offers."""
    if hasattr(channel, "publish_many"):
        return BulkLink(channel)
    if hasattr(channel, "confirm_select"):
        return WindowedLink(channel)
    return SingleLink(channel)


class BulkLink:
    """A channel that stores many messages in one statement (our PostgreSQL transport)."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def publish(self, hints: Sequence[Hint], deadline: float) -> tuple[set[UUID], bool]:
        try:
            self._channel.publish_many([(EXCHANGE, hint.queue, _virtual_message(hint)) for hint in hints])
        except Exception as error:
            unroutable = getattr(error, "unroutable", None)
            if unroutable is None:
                raise
            lost = {index for index, *_ in unroutable}
            return {hint.run_id for index, hint in enumerate(hints) if index not in lost}, True
        return {hint.run_id for hint in hints}, True


class SingleLink:
    """Any other Kombu transport: a message counts as confirmed when `publish` returned."""

    def __init__(self, channel: Any) -> None:
        self._producer = Producer(channel, auto_declare=False)

    def publish(self, hints: Sequence[Hint], deadline: float) -> tuple[set[UUID], bool]:
        confirmed: set[UUID] = set()
        for hint in hints:
            if time.monotonic() > deadline:
                return confirmed, False
            self._producer.publish(
                BODY,
                exchange=EXCHANGE,
                routing_key=hint.queue,
                content_type="application/json",
                content_encoding="utf-8",
                headers=headers(hint),
                priority=hint.priority,
                correlation_id=str(hint.run_id),
                retry=False,
            )
            confirmed.add(hint.run_id)
        return confirmed, True


def _virtual_message(hint: Hint) -> dict[str, Any]:
    """The message as Kombu's virtual transports write it."""
    return {
        "body": BODY,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": headers(hint),
        "properties": {
            "delivery_mode": PERSISTENT,
            "priority": hint.priority,
            "correlation_id": str(hint.run_id),
        },
    }
