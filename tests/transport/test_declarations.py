"""Exchanges, queues and bindings: what is declared, changed, counted and deleted, and what leaves by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from amqp.exceptions import NotFound, PreconditionFailed
from kombu import Connection, Exchange, Queue

from tests.transport.messages import consuming, declare, publish
from tests.transport.test_dead_letters import sweep

Database = psycopg.Connection[Any]


def queues(database: Database) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM everyslot_transport_queue ORDER BY name")]


def test_declaring_twice_keeps_the_queue_and_its_messages(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", "a", "b")
    declare(channel, "work")
    assert channel.queue_declare("work", passive=True).message_count == 2


def test_declaring_again_adds_arguments_and_never_takes_a_dead_letter_exchange_away(
    connection: Connection, database: Database
) -> None:
    channel = connection.channel()
    declare(channel, "work", **{"x-dead-letter-exchange": "dead"})
    declare(channel, "work")
    declare(channel, "work", **{"x-delivery-limit": 7})
    found = database.execute("SELECT dead_letter_exchange, delivery_limit FROM everyslot_transport_queue").fetchone()
    assert found == ("dead", 7)


def test_passive_declarations_of_what_is_not_there_are_refused(connection: Connection) -> None:
    with pytest.raises(NotFound):
        connection.channel().queue_declare("nowhere", passive=True)
    with pytest.raises(NotFound):
        connection.channel().exchange_declare("nowhere", passive=True)


def test_an_exchange_cannot_change_its_type(connection: Connection) -> None:
    channel = connection.channel()
    Exchange("x", type="direct")(channel).declare()
    Exchange("x", type="direct")(channel).declare()
    with pytest.raises(PreconditionFailed):
        Exchange("x", type="topic")(channel).declare()


def test_bindings_are_listed_and_removed(connection: Connection) -> None:
    channel = connection.channel()
    bound = Queue("q", Exchange("x"), routing_key="k")(channel)
    bound.declare()
    assert list(channel.list_bindings()) == [("q", "x", "k")]
    assert connection.get_manager().get_bindings() == [{"destination": "q", "source": "x", "routing_key": "k"}]
    bound.unbind_from(Exchange("x"), "k")
    assert list(channel.list_bindings()) == []


def test_binding_an_undeclared_queue_is_refused(connection: Connection) -> None:
    with pytest.raises(NotFound):
        connection.channel().queue_bind("nowhere", "x", "k")


def test_purge_and_delete_remove_messages(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", "a", "b")
    assert channel.queue_purge("work") == 2
    publish(channel, "work", "c")
    with pytest.raises(PreconditionFailed):
        channel.queue_delete("work", if_empty=True)
    assert channel.queue_delete("work") == 1
    assert queues(database) == []


def test_a_queue_in_use_is_not_deleted_if_unused_is_asked_for(connect: Callable[..., Connection]) -> None:
    first, second = connect().channel(), connect().channel()
    declare(first, "work")
    with consuming(first, "work"), pytest.raises(PreconditionFailed):
        second.queue_delete("work", if_unused=True)


def test_deleting_an_exchange_removes_its_bindings(connection: Connection) -> None:
    channel = connection.channel()
    Queue("q", Exchange("x"), routing_key="k")(channel).declare()
    channel.exchange_delete("x")
    assert list(channel.list_bindings()) == []


def test_an_auto_delete_queue_leaves_with_its_last_consumer(
    connect: Callable[..., Connection], database: Database
) -> None:
    first, second = connect().channel(), connect().channel()
    Queue("replies", auto_delete=True)(first).declare()
    publish(first, "replies", "late")
    with consuming(first, "replies"):
        with consuming(second, "replies"):
            pass
        assert queues(database) == ["replies"]
    assert queues(database) == []
    assert database.execute("SELECT count(*) FROM everyslot_transport_message").fetchone() == (0,)


def test_an_auto_delete_queue_that_was_never_consumed_stays(connection: Connection, database: Database) -> None:
    Queue("replies", auto_delete=True)(connection.channel()).declare()
    sweep(connection)
    assert queues(database) == ["replies"]


def test_an_unused_queue_leaves_after_its_expiry_and_a_used_one_stays(
    connect: Callable[..., Connection], database: Database
) -> None:
    connection = connect()
    channel = connection.channel()
    for name in ("unused", "used"):
        Queue(name, expires=60)(channel).declare()
    declare(channel, "plain")
    with consuming(channel, "used"):
        database.execute("UPDATE everyslot_transport_queue SET last_used_at = now() - interval '61 seconds'")
        sweep(connection)
        assert queues(database) == ["plain", "used"]


def test_messages_of_a_queue_that_is_gone_leave_with_the_next_sweep(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "a")
    declare(channel, "z")
    publish(channel, "a", "kept")
    publish(channel, "z", "lost", "too")
    database.execute("DELETE FROM everyslot_transport_queue WHERE name = 'z'")
    sweep(connection)
    assert database.execute("SELECT queue FROM everyslot_transport_message").fetchall() == [("a",)]
