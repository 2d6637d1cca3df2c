"""Brokers that tests can publish to: PostgreSQL always, RabbitMQ where its URL is in the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote
from uuid import UUID

from celery import current_app
from django.db import connection
from kombu import Connection

from scheduler_app.broker.publisher import Publisher
from scheduler_app.broker.topology import work_queue
from scheduler_app.core.message import Hint
from scheduler_app.instrument import subscribe
from tests.support.missing import without

Events = list[tuple[str, dict[str, Any]]]


def database_url() -> str:
    """The URL of the database that the test runs on."""
    has = connection.settings_dict
    login = quote(has["USER"]) + (f":{quote(has['PASSWORD'])}" if has["PASSWORD"] else "")
    return f"postgresql://{login}@{has['HOST']}:{has['PORT']}/{quote(has['NAME'])}"


def broker_url(kind: str) -> str:
    """The URL of a broker; without it the test cannot be run."""
    if kind == "postgres":
        return f"pgq+{database_url()}"
    found = os.environ.get("TEST_RABBITMQ_URL") or os.environ.get("BROKER_URL", "")
    if not found.startswith(("amqp", "pyamqp")):
        without("RabbitMQ is needed: `make test` starts it, or set BROKER_URL")
    return found


@contextmanager
def a_publisher(kind: str) -> Iterator[tuple[Publisher, Connection]]:
    """A publisher on empty queues, and a connection beside it."""
    url = broker_url(kind)
    with current_app.connection_for_write(url) as beside:
        channel = beside.channel()
        for name in ("default", "fast", "slow"):
            work_queue(name).bind(channel).declare()
            channel.queue_purge(name)
        channel.close()
        publisher = Publisher(url)
        try:
            yield publisher, beside
        finally:
            publisher.close()


@contextmanager
def announced() -> Iterator[Events]:
    """What was announced meanwhile."""
    events: Events = []
    stop = subscribe(lambda event, fields: events.append((event, fields)))
    try:
        yield events
    finally:
        stop()


class FakeBroker:
    """Stands for a broker that refuses what it is told to; everything else about it is real elsewhere."""

    def __init__(self, *, answered: bool = True, refuse: Sequence[UUID] = (), depth: int | None = 0) -> None:
        self.answered, self.refuse, self.messages = answered, set(refuse), depth
        self.published: list[Hint] = []

    def publish(self, hints: Sequence[Hint]) -> frozenset[UUID]:
        self.published += hints
        ids = {hint.run_id for hint in hints} - self.refuse
        return frozenset(ids if self.answered else ())

    def depth(self, queue: str) -> int | None:
        return self.messages
