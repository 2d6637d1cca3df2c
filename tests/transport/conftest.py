"""A database with the transport's tables, empty at the start of every test, and connections that end with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from kombu import Connection

import scheduler_app.transport  # noqa: F401 - registers the alias
from tests.support.missing import without
from tests.transport.postgres import fresh_database, private_server

TABLES = ("message", "binding", "queue", "exchange", "holder")


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The server of the environment, else a private one."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield given
        return
    with private_server() as server:
        if server is None:
            without("PostgreSQL is needed: set DATABASE_URL or install postgresql")
        yield server.url


@pytest.fixture(scope="session")
def transport_database(server_url: str) -> Iterator[str]:
    with fresh_database(server_url) as url:
        yield url


@pytest.fixture
def database(transport_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection beside the transport, to look and to interfere."""
    with psycopg.connect(transport_database, autocommit=True) as connection:
        names = ", ".join(f"everyslot_transport_{table}" for table in TABLES)
        connection.execute(f"TRUNCATE {names}".encode())
        connection.execute("UPDATE everyslot_transport_sweep SET swept_at = '-infinity'")
        yield connection


@pytest.fixture
def connect(database: psycopg.Connection[Any], transport_database: str) -> Iterator[Callable[..., Connection]]:
    """Make broker connections; keyword arguments are transport options."""
    made: list[Connection] = []

    def make(**options: object) -> Connection:
        made.append(Connection(f"pgq+{transport_database}", transport_options=options))
        return made[-1]

    yield make
    for connection in made:
        connection.release()


@pytest.fixture
def connection(connect: Callable[..., Connection]) -> Connection:
    return connect()
