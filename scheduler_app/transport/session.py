"""One PostgreSQL session for one Kombu connection: every statement, LISTEN included, goes through it, one at a time.

Guaranteed: threads share it under one lock; autocommit, so nothing is ever left open between calls; a forked child
never speaks on its parent's socket, and never ends the parent's session by closing it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, LiteralString

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from scheduler_app.transport.errors import TablesMissing

Row = tuple[Any, ...]
Parameters = Mapping[str, object]

_live: weakref.WeakSet[Session] = weakref.WeakSet()

# An ordered walk over an index is right for every statement of ours, however wrong the statistics of a hot table are;
# they are set here and not as start-up options, which PgBouncer refuses.
_SETTINGS: LiteralString = """
SELECT to_regclass('everyslot_transport_sweep') IS NOT NULL;
SET statement_timeout = '15s'; SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '15s';
SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off
"""


def _conninfo(url: str, connect_timeout: float | None) -> str:
    """libpq's connection string for a broker address, with keepalives that notice a dead peer within a minute."""
    if url.startswith("pgq://"):
        url = "postgresql://" + url.removeprefix("pgq://")
    defaults = {
        "application_name": "everyslot transport",
        "connect_timeout": str(max(1, round(connect_timeout or 5))),
        "keepalives_idle": "20",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "30000",
    }
    given = {key: value for key, value in conninfo_to_dict(url).items() if value is not None}
    return make_conninfo("", **{**defaults, **given})


class Session:
    """A connected session. Raises `psycopg.OperationalError` on every use after the connection has been lost."""

    def __init__(self, url: str, connect_timeout: float | None = None) -> None:
        self.lock = threading.RLock()
        self.noticed: set[str] = set()
        self.listening: set[str] = set()
        self._inherited = False
        self._connection = psycopg.connect(_conninfo(url, connect_timeout), autocommit=True, prepare_threshold=0)
        try:
            present = self._connection.execute(_SETTINGS, prepare=False).fetchone()
            if present is None or not present[0]:
                raise TablesMissing("the transport's tables are missing here: run `manage.py migrate`")
        except BaseException:
            self._connection.close()
            raise
        self._connection.add_notify_handler(lambda notice: self.noticed.add(notice.channel))
        _live.add(self)

    @property
    def closed(self) -> bool:
        return self._inherited or self._connection.closed

    def fileno(self) -> int:
        """The socket's descriptor. Raises `psycopg.OperationalError` when there is none any more."""
        return self._usable().pgconn.socket

    def rows(self, statement: LiteralString, parameters: Parameters | None = None) -> list[Row]:
        """Run one statement in a transaction of its own (or in the open one) and return what it returns."""
        with self.lock:
            cursor = self._usable().execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def count(self, statement: LiteralString, parameters: Parameters | None = None) -> int:
        """Run one statement and return how many rows it wrote."""
        with self.lock:
            return self._usable().execute(statement, parameters).rowcount

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several statements in one transaction; other threads wait."""
        with self.lock, self._usable().transaction():
            yield

    def listen(self, channels: Collection[str]) -> None:
        """Listen to exactly these channels from now on."""
        with self.lock:
            for verb, names in (
                ("LISTEN", set(channels) - self.listening),
                ("UNLISTEN", self.listening - set(channels)),
            ):
                for name in sorted(names):
                    self._usable().execute(sql.SQL(f"{verb} {{}}").format(sql.Identifier(name)), prepare=False)
            self.listening = set(channels)

    def take_notices(self) -> set[str]:
        """The channels notified since the last call, without waiting. Notices a lost connection by raising."""
        with self.lock:
            libpq = self._usable().pgconn
            libpq.consume_input()
            while notice := libpq.notifies():
                self.noticed.add(notice.relname.decode())
            noticed, self.noticed = self.noticed, set()
            if libpq.status != pq.ConnStatus.OK:
                raise psycopg.OperationalError("the connection is lost")
            return noticed

    def close(self) -> None:
        """End the session; safe to call again and on a lost connection."""
        with self.lock, suppress(psycopg.Error):
            if not self._inherited:
                self._connection.close()

    def _usable(self) -> psycopg.Connection[Row]:
        if self._inherited:
            raise psycopg.OperationalError("this session belongs to the parent process")
        return self._connection

    def _disinherit(self) -> None:
        """In a forked child: put /dev/null in the socket's place, so that nothing here can reach the server."""
        self.lock = threading.RLock()
        self._inherited = True
        with suppress(psycopg.Error, OSError):
            descriptor = self._connection.pgconn.socket
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, descriptor)
            os.close(null)


def _disinherit_all() -> None:
    for session in list(_live):
        session._disinherit()


os.register_at_fork(after_in_child=_disinherit_all)
