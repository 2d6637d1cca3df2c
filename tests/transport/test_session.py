"""Sessions: lost ones are noticed, forked children leave them alone, threads share them, settings hold."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from kombu import Connection

from scheduler_app.transport import TablesMissing
from scheduler_app.transport.session import Session
from tests.transport.messages import consuming, declare, drain, publish
from tests.transport.postgres import fresh_database

Database = psycopg.Connection[Any]


def kill_sessions(database: Database) -> None:
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'everyslot transport' AND datname = current_database()"
    )


def test_a_session_says_who_it_is_and_limits_its_statements(connection: Connection) -> None:
    connection.connect()
    rows = connection.transport.session.rows
    assert rows("SHOW application_name") == [("everyslot transport",)]
    assert rows("SHOW statement_timeout") == [("15s",)]


def test_a_database_without_the_tables_is_a_connection_error_that_names_the_command(server_url: str) -> None:
    with fresh_database(server_url, tables=False) as url, pytest.raises(TablesMissing, match="migrate") as raised:
        Connection(f"pgq+{url}").connect()
    assert isinstance(raised.value, Connection("pgq+postgresql://").connection_errors)


def test_a_lost_session_raises_a_connection_error_and_the_next_connect_works(
    connection: Connection, database: Database
) -> None:
    channel = connection.channel()
    declare(channel, "work")
    kill_sessions(database)
    with pytest.raises(connection.connection_errors):
        publish(channel, "work", "a")
    assert not connection.connected
    publish(connection.default_channel, "work", "b")


def test_a_waiting_consumer_notices_that_its_session_is_lost(
    connect: Callable[..., Connection], database: Database
) -> None:
    connection = connect(polling_interval=60)
    channel = connection.channel()
    declare(channel, "work")
    with consuming(channel, "work"):
        drain(connection)
        later = threading.Timer(0.1, kill_sessions, (database,))
        later.start()
        with pytest.raises(connection.connection_errors):
            connection.drain_events(timeout=20)
        later.join()


def test_a_producer_with_retry_connects_anew(connection: Connection, database: Database) -> None:
    declare(connection.default_channel, "work")
    producer = connection.Producer()
    kill_sessions(database)
    producer.publish({}, routing_key="work", retry=True, retry_policy={"max_retries": 3, "interval_start": 0})
    assert connection.default_channel.queue_declare("work", passive=True).message_count == 1


def test_a_forked_child_cannot_use_or_end_its_parents_session(transport_database: str) -> None:
    session = Session(transport_database)
    child = os.fork()
    if child == 0:
        refused = 1
        try:
            session.rows("SELECT 1")
        except psycopg.OperationalError:
            refused = 0
        session.close()
        session._connection.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.rows("SELECT 1") == [(1,)]
    session.close()


def test_a_fork_while_another_thread_holds_the_session_leaves_the_child_free(transport_database: str) -> None:
    session = Session(transport_database)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with session.lock:
            held.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    child = os.fork()
    if child == 0:
        with session.lock:
            os._exit(0)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    session.close()


def test_threads_share_one_connection(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "work")
    threads = [threading.Thread(target=lambda: [publish(channel, "work", "a") for _ in range(25)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert channel.queue_declare("work", passive=True).message_count == 200
