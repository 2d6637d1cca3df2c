"""Publishing: durable when it returns, in bulk in one statement, never silently nowhere where it must arrive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from kombu import Connection, Exchange, Queue

from scheduler_app.transport import UnroutableMessage
from scheduler_app.transport.routing import notice_channel
from tests.transport.messages import bodies, consuming, declare, drain, message, publish

Database = psycopg.Connection[Any]


def stored(database: Database) -> list[tuple[Any, ...]]:
    return database.execute("SELECT queue, priority FROM everyslot_transport_message ORDER BY queue, id").fetchall()


def test_a_published_message_is_committed_when_the_call_returns(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "work")
    connection.Producer().publish({"n": 1}, routing_key="work", mandatory=True)
    assert stored(database) == [("work", 0)]


def test_publish_many_stores_a_batch_over_several_queues(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "a")
    Queue("b", Exchange("direct"), routing_key="key")(channel).declare()
    channel.publish_many(
        [
            ("", "a", message(channel, priority=5)),
            ("direct", "key", message(channel)),
            ("", "a", message(channel)),
        ]
    )
    assert stored(database) == [("a", 5), ("a", 0), ("b", 0)]


def test_publish_many_takes_messages_that_were_already_augmented(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "work")
    encoded = message(channel, "héllo")
    channel._inplace_augment_message(encoded, "", "work")
    channel.publish_many([("", "work", encoded), ("", "work", message(channel, "héllo"))])
    found = [channel.basic_get("work", no_ack=True).body for _ in range(2)]
    assert [body.decode() for body in found] == ["héllo", "héllo"]


def test_publish_many_of_nothing_is_nothing(connection: Connection, database: Database) -> None:
    connection.channel().publish_many([])
    assert stored(database) == []


def test_publish_many_names_the_unroutable_and_keeps_the_others(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "work")
    items = [("", "nowhere", message(channel)), ("", "work", message(channel)), ("gone", "x", message(channel))]
    with pytest.raises(UnroutableMessage) as raised:
        channel.publish_many(items)
    assert raised.value.unroutable == [(0, "", "nowhere"), (2, "gone", "x")]
    assert stored(database) == [("work", 0)]


def test_publishing_to_nowhere_raises_only_where_it_is_mandatory(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    producer = connection.Producer()
    producer.publish({}, routing_key="nowhere", delivery_mode=1)
    assert caplog.records == []
    producer.publish({}, routing_key="nowhere", delivery_mode=2)
    assert "reached no queue" in caplog.text
    with pytest.raises(UnroutableMessage):
        producer.publish({}, routing_key="nowhere", mandatory=True)


def test_bodies_headers_and_marked_types_come_back_as_they_were(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "work")
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    producer = connection.Producer()
    producer.publish({"text": "nul \0, é, \ud83d\ude00"}, routing_key="work", headers={"when": when}, priority=3)
    producer.publish(b"\x00\xff", routing_key="work", content_type="application/data", content_encoding="binary")
    first, second = (channel.basic_get("work", no_ack=True) for _ in range(2))
    assert first.payload == {"text": "nul \0, é, 😀"}
    assert first.headers == {"when": when}
    assert first.properties["priority"] == 3
    assert first.delivery_info == {"exchange": "", "routing_key": "work", "redelivered": False}
    assert second.body == b"\x00\xff"


def test_topic_and_fanout_exchanges_copy_to_every_matching_queue_once(
    connection: Connection, database: Database
) -> None:
    channel = connection.channel()
    topic, fanout = Exchange("topic", type="topic"), Exchange("fanout", type="fanout")
    failures = Queue("failures", bindings=[topic.binding("*.failed"), topic.binding("task.#")])
    failures(channel).declare()
    topic(channel).declare()
    Queue("all", fanout)(channel).declare()
    Queue("also", fanout)(channel).declare()
    for exchange, key in (("topic", "task.failed"), ("topic", "worker.online"), ("fanout", "any")):
        channel.basic_publish(message(channel, delivery_mode=1), exchange, key)
    assert stored(database) == [("all", 0), ("also", 0), ("failures", 0)]


def test_a_publish_notifies_only_queues_that_somebody_consumes(
    connect: Callable[..., Connection], transport_database: str
) -> None:
    publisher, consumer = connect().channel(), connect()
    for queue in ("watched", "unwatched"):
        declare(publisher, queue)
    with (
        consuming(consumer.channel(), "watched"),
        psycopg.connect(transport_database, autocommit=True) as listener,
    ):
        for queue in ("watched", "unwatched"):
            listener.execute(f"LISTEN {notice_channel(queue)}".encode())
        publish(publisher, "unwatched", "a")
        publish(publisher, "watched", *("b" * 50))
        notices = list(listener.notifies(timeout=0.3))
    assert [notice.channel for notice in notices] == [notice_channel("watched")]


def test_a_message_that_expired_unread_is_not_delivered(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "work")
    channel.publish_many([("", "work", message(channel, "old", expiration="0")), ("", "work", message(channel, "new"))])
    with consuming(channel, "work") as received:
        drain(connection)
    assert bodies(received) == ["new"]
