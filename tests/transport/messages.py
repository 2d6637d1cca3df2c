"""Short ways to make queues and messages in tests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kombu import Connection, Consumer, Queue


def declare(channel: Any, name: str, **arguments: object) -> str:
    """A durable queue with x-arguments, reached through the default exchange."""
    Queue(name, durable=True, queue_arguments=arguments)(channel).declare()
    return name


def message(channel: Any, body: str = "{}", priority: int = 0, **properties: object) -> dict[str, Any]:
    return channel.prepare_message(body, priority, "application/json", "utf-8", {}, {"delivery_mode": 2, **properties})


def publish(channel: Any, queue: str, *bodies: str, priority: int = 0) -> None:
    channel.publish_many([("", queue, message(channel, body, priority)) for body in bodies])


@contextmanager
def consuming(channel: Any, *queues: str, no_ack: bool = False) -> Iterator[list[Any]]:
    """Consume; the list receives the messages in order of delivery."""
    received: list[Any] = []
    consumer = Consumer(
        channel,
        [Queue(name, no_declare=True) for name in queues],
        no_ack=no_ack,
        on_message=received.append,
        auto_declare=False,
    )
    with consumer:
        yield received


def drain(connection: Connection, count: int | None = None, seconds: float = 5) -> None:
    """Deliver `count` messages, or all that are there."""
    if count is None:
        with suppress(socket.timeout):
            while True:
                connection.drain_events(timeout=0.05)
    else:
        for _ in range(count):
            connection.drain_events(timeout=seconds)


def bodies(received: list[Any]) -> list[str]:
    return [found.body.decode() for found in received]
