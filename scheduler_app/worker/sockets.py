"""Database sockets of the parent's threads, closed in every pool child.

A child that keeps an inherited socket open would keep the parent's database session alive after the parent's death,
and with it the session lock whose loss tells of that death. Only the descriptor is closed: ending the connection
itself would send the server a goodbye in the parent's name.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any

from celery.signals import worker_process_init
from django.db import connections
from django.db.backends.signals import connection_created

_open: dict[int, int] = {}  # descriptor -> process that opened it


def _remember(connection: Any, **_: Any) -> None:
    driver = connection.connection
    with contextlib.suppress(Exception):
        _open[driver.pgconn.socket] = os.getpid()


def forget_inherited_sockets() -> None:
    """Start to remember this process's database sockets, for its children to close."""
    connection_created.connect(_remember, dispatch_uid="everyslot-sockets")
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None:
            _remember(connection)


@worker_process_init.connect(dispatch_uid="everyslot-sockets")
def _close_inherited(**_: Any) -> None:
    for descriptor, owner in list(_open.items()):
        if owner != os.getpid():
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    null = os.open(os.devnull, os.O_RDWR)
                    os.dup2(null, descriptor)
                    os.close(null)
    _open.clear()
