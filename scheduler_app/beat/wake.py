"""Waiting that ends early: when PostgreSQL notifies, when another thread wakes it, or when the process stops."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from typing import Any

from django.db import connection


class Alarm:
    """Something to wait for, by file descriptor. `ring` may be called from any thread and from a signal handler."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def ring(self) -> None:
        """End the wait that is going on, or else the next one."""
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            return  # it rings already

    def fileno(self) -> int:
        return self._read

    def wait(self, seconds: float) -> None:
        """Wait until it rings, at most so many seconds."""
        select.select([self._read], [], [], max(0.0, seconds))
        self.clear()

    def clear(self) -> None:
        """Forget that it rang."""
        try:
            while len(os.read(self._read, 4096)) == 4096:
                pass
        except BlockingIOError:
            return


class Ear:
    """Listens on PostgreSQL channels through the calling thread's Django connection, and to an alarm.

    LISTEN needs a session of our own; behind a transaction pooler (`session_locks` off) it only waits.
    """

    def __init__(self, alarm: Alarm, channels: Sequence[str]) -> None:
        self._alarm = alarm
        self._channels = channels
        self._listening: Any = None

    def wait(self, seconds: float) -> None:
        """Wait for a notification or the alarm, at most so many seconds; raises database errors.

        A session that has only now begun to listen may have missed one: then there is no wait, and the caller looks
        again.
        """
        if not self._channels:
            self._alarm.wait(seconds)
            return
        connection.ensure_connection()
        session = connection.connection
        if session is not self._listening:
            self._listen()
            return
        if self._heard(session):
            self._alarm.clear()
            return
        ready, _, _ = select.select([session.fileno(), self._alarm.fileno()], [], [], max(0.0, seconds))
        self._alarm.clear()
        if session.fileno() in ready:
            self._heard(session)

    def _listen(self) -> None:
        with connection.cursor() as cursor:
            for channel in self._channels:
                cursor.execute(f'LISTEN "{channel}"')
        self._listening = connection.connection

    @staticmethod
    def _heard(session: Any) -> bool:
        """Read what has come; raises Django's database errors if the session is dead."""
        with connection.wrap_database_errors:
            return bool(list(session.notifies(timeout=0)))
