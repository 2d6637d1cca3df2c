"""Topic patterns, notification channels and masked addresses."""

from __future__ import annotations

import re

import pytest
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES

from scheduler_app import transport
from scheduler_app.transport.routing import masked, notice_channel, topic_pattern

ADDRESSES = [
    ("postgresql://me:secret@host:5432/db", "postgresql://me:**@host:5432/db"),
    ("postgresql://me@host/db", "postgresql://me@host/db"),
    ("postgresql://me:a%40b@h1:1,h2:2/db", "postgresql://me:**@h1:1,h2:2/db"),
    (
        "postgresql:///db?user=me&password=secret&sslmode=require",
        "postgresql:///db?user=me&password=**&sslmode=require",
    ),
    ("postgresql://host/db?sslpassword=x", "postgresql://host/db?sslpassword=**"),
]
TOPICS = [
    ("worker.#", "worker.heartbeat", True),
    ("worker.#", "worker", True),
    ("worker.#", "workers.x", False),
    ("#", "", True),
    ("#", "a.b.c", True),
    ("*.failed", "task.failed", True),
    ("*.failed", "a.b.failed", False),
    ("a.#.z", "a.z", True),
    ("a.#.z", "a.b.c.z", True),
    ("a.#.z", "a.b.c", False),
    ("a+b.*", "a+b.c", True),
    ("a+b.*", "aab.c", False),
]


@pytest.mark.parametrize(("key", "routing_key", "matches"), TOPICS)
def test_topic_pattern_matches_as_amqp_says(key: str, routing_key: str, matches: bool) -> None:
    assert bool(re.match(topic_pattern(key), routing_key + ".")) is matches


def test_notice_channel_of_a_long_name_fits_into_an_identifier() -> None:
    assert len(notice_channel("queue" * 100)) <= 63
    assert notice_channel("a") != notice_channel("b")


@pytest.mark.parametrize(("address", "shown"), ADDRESSES)
def test_a_shown_address_has_no_password(address: str, shown: str) -> None:
    assert masked(address) == shown
    assert Connection(f"pgq+{address}").as_uri() == f"pgq+{shown}"


def test_an_address_with_its_password_is_given_only_when_asked_for() -> None:
    address = "pgq+postgresql://me:secret@host/db"
    assert Connection(address).as_uri(include_password=True) == address
    assert "secret" not in repr(Connection(address))


def test_registering_again_changes_nothing() -> None:
    transport.register()
    transport.register()
    assert TRANSPORT_ALIASES["pgq"] == "scheduler_app.transport.transport:Transport"
