"""Consuming: batches, order, fairness, prefetch, and what happens to what was not settled."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from amqp.exceptions import NotFound, RecoverableConnectionError
from kombu import Connection

from tests.transport.messages import bodies, consuming, declare, drain, publish

Database = psycopg.Connection[Any]


def remaining(database: Database) -> list[tuple[Any, ...]]:
    return database.execute("SELECT queue, holder IS NOT NULL FROM everyslot_transport_message ORDER BY id").fetchall()


def test_higher_priority_comes_first_and_then_the_older(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "work")
    for body, priority in (("low", 0), ("high", 9), ("middle", 4), ("high too", 9), ("low too", 0)):
        publish(channel, "work", body, priority=priority)
    with consuming(channel, "work") as received:
        drain(connection, 5)
    assert bodies(received) == ["high", "high too", "middle", "low", "low too"]


def test_one_read_is_shared_fairly_between_queues(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    for queue in ("busy", "quiet", "idle"):
        declare(channel, queue)
    publish(channel, "busy", *(f"busy {n}" for n in range(50)))
    publish(channel, "quiet", "quiet 0", "quiet 1")
    channel.basic_qos(prefetch_count=6)
    with consuming(channel, "busy", "quiet", "idle") as received:
        drain(connection, 6)
        assert sorted(bodies(received)) == ["busy 0", "busy 1", "busy 2", "busy 3", "quiet 0", "quiet 1"]


def test_no_queue_starves_when_fewer_messages_are_read_than_there_are_queues(connection: Connection) -> None:
    channel = connection.channel()
    queues = ["a", "b", "c"]
    for queue in queues:
        declare(channel, queue)
        publish(channel, queue, *(queue * 3))
    channel.basic_qos(prefetch_count=1)
    with consuming(channel, *queues) as received:
        for _ in range(9):
            drain(connection, 1)
            received[-1].ack()
    assert sorted(bodies(received)[:3]) == queues


def test_prefetch_limits_what_is_held_and_an_ack_makes_room(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", *"abcde")
    channel.basic_qos(prefetch_count=2)
    with consuming(channel, "work") as received:
        drain(connection)
        assert bodies(received) == ["a", "b"]
        assert [held for _queue, held in remaining(database)] == [True, True, False, False, False]
        received[0].ack()
        drain(connection)
        assert bodies(received) == ["a", "b", "c"]


def test_acknowledgements_are_written_in_sets_and_on_close(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", *"abc")
    with consuming(channel, "work") as received:
        drain(connection, 3)
    received[0].ack()
    received[1].ack()
    channel.close()
    assert remaining(database) == [("work", False)]
    with pytest.raises(RecoverableConnectionError):
        received[2].ack()


def test_ack_of_several_at_once_takes_all_up_to_the_tag(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", *"abc")
    with consuming(channel, "work") as received:
        drain(connection, 3)
    received[1].ack(multiple=True)
    received[1].channel.basic_ack(received[1].delivery_tag)
    drain(connection)
    assert remaining(database) == [("work", True)]


def test_an_ack_from_another_thread_lets_a_waiting_consumer_go_on(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", "a", "b")
    channel.basic_qos(prefetch_count=1)
    connection.transport.polling_interval = 60
    with consuming(channel, "work") as received:
        drain(connection, 1)
        later = threading.Timer(0.1, received[0].ack)
        later.start()
        drain(connection, 1, seconds=10)
        later.join()
    assert bodies(received) == ["a", "b"]


def test_what_is_given_back_is_visible_at_once_and_marked_redelivered(connect: Callable[..., Connection]) -> None:
    first, second = connect(), connect()
    channel = first.channel()
    declare(channel, "work")
    publish(channel, "work", "a")
    taken = channel.basic_get("work")
    assert second.channel().basic_get("work") is None
    taken.requeue()
    again = second.channel().basic_get("work")
    assert (again.body, again.delivery_info["redelivered"], again.headers["x-delivery-count"]) == (b"a", True, 1)


def test_closing_a_channel_gives_back_what_it_held_in_the_old_order(connect: Callable[..., Connection]) -> None:
    first, second = connect(), connect()
    channel = first.channel()
    declare(channel, "work")
    publish(channel, "work", *"abc")
    with consuming(channel, "work"):
        drain(first, 2)
        channel.close()
    with consuming(second.channel(), "work") as received:
        drain(second, 3)
    assert bodies(received) == ["a", "b", "c"]


def test_cancelling_a_consumer_gives_back_what_it_was_not_handed(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", *"abc")
    with consuming(channel, "work"):
        drain(connection, 1)
    assert [held for _queue, held in remaining(database)] == [True, False, False]


def test_a_no_ack_consumer_deletes_by_reading(connection: Connection, database: Database) -> None:
    channel = connection.channel()
    declare(channel, "events")
    publish(channel, "events", "a", "b")
    with consuming(channel, "events", no_ack=True) as received:
        drain(connection, 2)
        assert remaining(database) == []
    assert bodies(received) == ["a", "b"]


def test_a_waiting_consumer_is_woken_by_a_publish(connect: Callable[..., Connection]) -> None:
    waiting, publisher = connect(polling_interval=60), connect().channel()
    declare(publisher, "work")
    with consuming(waiting.channel(), "work") as received:
        drain(waiting)
        later = threading.Timer(0.1, publish, (publisher, "work", "a"))
        later.start()
        drain(waiting, 1, seconds=10)
        later.join()
    assert bodies(received) == ["a"]


def test_polling_finds_what_no_notice_announced(connect: Callable[..., Connection], database: Database) -> None:
    waiting = connect(polling_interval=0.1)
    channel = waiting.channel()
    declare(channel, "work")
    publish(channel, "work", "a")
    database.execute("UPDATE everyslot_transport_message SET holder = -1")
    with consuming(channel, "work") as received:
        drain(waiting)
        assert received == []
        database.execute("UPDATE everyslot_transport_message SET holder = NULL")
        drain(waiting, 1)
    assert bodies(received) == ["a"]


def test_draining_without_a_message_times_out(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "work")
    with consuming(channel, "work"), pytest.raises(socket.timeout):
        connection.drain_events(timeout=0)


def test_consuming_from_an_undeclared_queue_is_refused(connection: Connection) -> None:
    with pytest.raises(NotFound), consuming(connection.channel(), "nowhere"):
        pass


def test_two_consumers_never_get_the_same_message(connect: Callable[..., Connection]) -> None:
    connections = [connect(read_batch=7), connect(read_batch=7)]
    declare(connections[0].default_channel, "work")
    publish(connections[0].default_channel, "work", *(str(n) for n in range(300)))
    taken: list[list[str]] = [[], []]

    def take(index: int) -> None:
        with consuming(connections[index].channel(), "work", no_ack=True) as received:
            drain(connections[index])
        taken[index] = bodies(received)

    threads = [threading.Thread(target=take, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, taken[0] + taken[1])) == list(range(300))
