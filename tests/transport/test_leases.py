"""Leases: a live consumer keeps what it holds, a dead one's messages return, one who was silent too long is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from kombu import Connection

from scheduler_app.transport import LeaseLost
from tests.transport.messages import bodies, consuming, declare, drain, publish
from tests.transport.test_dead_letters import sweep
from tests.transport.waiting import wait_until

Database = psycopg.Connection[Any]


def lease_ends(database: Database) -> list[Any]:
    return [end for (end,) in database.execute("SELECT alive_until FROM everyslot_transport_holder")]


def expire_leases(database: Database) -> None:
    database.execute("UPDATE everyslot_transport_holder SET alive_until = now() - interval '1 second'")


def test_the_lease_of_all_held_messages_is_one_row_renewed_while_nobody_drains(
    connect: Callable[..., Connection], database: Database
) -> None:
    connection = connect(lease=0.6, sweep_interval=0.1)
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", *"abc")
    with consuming(channel, "work"):
        drain(connection, 3)
        first = lease_ends(database)
        assert len(first) == 1
        wait_until(lambda: lease_ends(database) > first, what="the lease is renewed")


def end_sessions(database: Database) -> None:
    """Of everybody who holds messages in this database: only they have an advisory lock."""
    database.execute(
        "SELECT pg_terminate_backend(l.pid, 5000) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
        " WHERE l.locktype = 'advisory' AND d.datname = current_database()"
    )


@pytest.mark.parametrize("die", [expire_leases, end_sessions])
def test_messages_of_a_dead_consumer_return_to_others_as_redelivered(
    connect: Callable[..., Connection], database: Database, die: Callable[[Database], None]
) -> None:
    dead, living = connect(), connect()
    channel = dead.channel()
    declare(channel, "work")
    publish(channel, "work", "a", "b")
    with consuming(channel, "work"):
        drain(dead, 2)
        sweep(living)
        assert len(lease_ends(database)) == 1, "it lives"
        die(database)
        sweep(living)
        with consuming(living.channel(), "work") as received:
            drain(living, 2)
    assert bodies(received) == ["a", "b"]
    assert [found.delivery_info["redelivered"] for found in received] == [True, True]


def test_where_a_pooler_parts_lock_and_connection_the_lease_alone_decides(
    connect: Callable[..., Connection], database: Database
) -> None:
    pooled, living = connect(lease=0.6, sweep_interval=0.1), connect()
    channel = pooled.channel()
    declare(channel, "work")
    publish(channel, "work", "a")
    with consuming(channel, "work"):
        drain(pooled, 1)
        database.execute("UPDATE everyslot_transport_holder SET locked = false")  # no sweep until it has renewed
        pooled.connection._session.rows("SELECT pg_advisory_unlock_all()")
        first = lease_ends(database)
        wait_until(lambda: lease_ends(database) > first, what="the lease is renewed")
        assert database.execute("SELECT locked FROM everyslot_transport_holder").fetchone() == (False,)
        sweep(living)
        assert len(lease_ends(database)) == 1


def test_the_sweep_of_a_dead_consumers_last_delivery_buries_it(
    connect: Callable[..., Connection], database: Database
) -> None:
    dead, living = connect(), connect()
    channel = dead.channel()
    declare(channel, "dead")
    declare(
        channel,
        "work",
        **{
            "x-delivery-limit": 0,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    publish(channel, "work", "a")
    channel.basic_get("work")
    expire_leases(database)
    sweep(living)
    assert living.channel().basic_get("dead").headers["x-first-death-reason"] == "delivery_limit"


def test_an_ack_after_the_lease_was_lost_leaves_the_message_to_its_new_holder(
    connect: Callable[..., Connection], database: Database
) -> None:
    frozen, living = connect(), connect()
    channel = frozen.channel()
    declare(channel, "work")
    publish(channel, "work", "a")
    late = channel.basic_get("work")
    expire_leases(database)
    sweep(living)
    current = living.channel().basic_get("work")
    late.ack()
    frozen.transport.flush()
    late.channel.basic_reject(late.delivery_tag)
    assert database.execute("SELECT count(*) FROM everyslot_transport_message").fetchone() == (1,)
    current.ack()
    living.transport.flush()
    assert database.execute("SELECT count(*) FROM everyslot_transport_message").fetchone() == (0,)


def test_a_consumer_that_lost_its_lease_is_told_to_connect_anew(
    connect: Callable[..., Connection], database: Database
) -> None:
    connection = connect(lease=0.3, sweep_interval=0.05)
    channel = connection.channel()
    declare(channel, "work")
    with consuming(channel, "work"):
        drain(connection)
        database.execute("DELETE FROM everyslot_transport_holder")
        with pytest.raises(LeaseLost):
            drain(connection, 1, seconds=20)
    assert isinstance(LeaseLost("x"), connection.connection_errors)


def test_only_one_of_many_sweeps_in_an_interval(connect: Callable[..., Connection], database: Database) -> None:
    sweepers = [connect(sweep_interval=3600) for _ in range(4)]
    for sweeper in sweepers:
        sweeper.connect()
    swept: list[bool] = []
    threads = [
        threading.Thread(target=lambda keeper=sweeper.transport.keeper: swept.append(keeper.sweep()))
        for sweeper in sweepers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(swept) == [False, False, False, True]


def test_a_released_connection_leaves_no_lease_and_no_thread(
    connect: Callable[..., Connection], database: Database
) -> None:
    before = set(threading.enumerate())
    connection = connect()
    channel = connection.channel()
    declare(channel, "work")
    with consuming(channel, "work"):
        drain(connection)
        assert len(set(threading.enumerate()) - before) == 1
        connection.release()
    assert lease_ends(database) == []
    wait_until(lambda: not set(threading.enumerate()) - before, what="the keeper's thread ends")


def test_a_process_that_reconnects_gets_back_at_once_what_it_held(
    connect: Callable[..., Connection], database: Database
) -> None:
    lost, next_one = connect(), connect()
    channel = lost.channel()
    declare(channel, "work")
    publish(channel, "work", "a")
    channel.basic_get("work")
    lost.transport.session.close()
    lost.collect()
    with consuming(next_one.channel(), "work") as received:
        drain(next_one, 1)
    assert received[0].delivery_info["redelivered"]
    assert len(lease_ends(database)) == 1


def test_a_connection_that_consumes_nothing_any_more_holds_no_lease_and_can_begin_again(
    connection: Connection, database: Database
) -> None:
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", "a", "b")
    for expected in ("a", "b"):
        channel.basic_qos(prefetch_count=1)
        with consuming(channel, "work") as received:
            drain(connection, 1)
            received[0].ack()
            connection.transport.flush()
            assert len(lease_ends(database)) == 1
        assert bodies(received) == [expected]
        assert lease_ends(database) == []


def test_a_lease_is_kept_for_what_a_cancelled_consumer_has_not_acknowledged(
    connection: Connection, database: Database
) -> None:
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", "a")
    with consuming(channel, "work") as received:
        drain(connection, 1)
    assert len(lease_ends(database)) == 1
    received[0].ack()
    connection.release()
    assert database.execute("SELECT count(*) FROM everyslot_transport_message").fetchone() == (0,)
