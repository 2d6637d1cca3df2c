"""What the tests with real workers share: programs, a broker to choose, and a place for the tasks' notes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import current_app

from scheduler_app.broker import publisher as publishing
from scheduler_app.broker.publisher import Publisher
from scheduler_app.broker.topology import dead_queue, work_queue
from scheduler_app.models import Term
from tests.support.brokers import broker_url
from tests.support.invariants import broken_invariants
from tests.support.programs import Programs, programs


@pytest.fixture(params=["postgres", "rabbitmq"])
def broker(request: pytest.FixtureRequest, db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each broker in turn, its queues empty; what this process publishes goes there."""
    kind: str = request.param
    url = broker_url(kind)
    with current_app.connection_for_write(url) as connection:
        channel = connection.channel()
        for queue in (*map(work_queue, ("default", "fast", "slow")), dead_queue()):
            queue.bind(channel).declare()
            channel.queue_purge(queue.name)
        channel.close()
    publisher = Publisher(url)
    monkeypatch.setattr(publishing, "_publisher", publisher)
    yield kind
    publisher.close()


@pytest.fixture
def run(broker: str) -> Iterator[Programs]:
    """Start beats and workers; nobody leads before, and the invariants hold afterwards."""
    Term.objects.all().delete()
    with programs(broker) as started:
        yield started
        assert broken_invariants() == []
    Term.objects.all().delete()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The file into which the tasks note what they did."""
    return tmp_path / "notes"
