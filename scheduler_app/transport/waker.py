"""A socket pair that makes a poll or select return at once, from any thread."""

from __future__ import annotations

import socket
from contextlib import suppress


class Waker:
    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._pending = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """One wake is enough until it is drained."""
        if not self._pending:
            self._pending = True
            with suppress(OSError):
                self._writer.send(b"\0")

    def drain(self) -> None:
        """Look for work after this, not before. Read first: a wake between the two lines is seen by that look,
        while the other order could swallow it and leave the flag set for good."""
        with suppress(OSError):
            self._reader.recv(64)
        self._pending = False

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
