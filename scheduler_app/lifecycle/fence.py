"""Fence: a block of database work that takes effect only while its attempt is the current one.

The run's row is locked at the end of the block, just before the commit: an attempt that was declared lost meanwhile
finds no row and rolls back, and no other attempt can begin between the look and the commit. Nothing is locked while
the block works, so a frozen attempt never holds up the one that follows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import transaction

from scheduler_app.core.errors import LostGround
from scheduler_app.store.work import hold_attempt


@contextmanager
def fence(run_id: UUID, attempt: int, worker: UUID | None) -> Iterator[None]:
    """A transaction (a savepoint where one is open) of this attempt; raises LostGround, its work undone, if it is not
    the current one any more. Without a worker (in tests) there is no row, and it is a mere transaction."""
    with transaction.atomic():
        yield
        if worker is not None and not hold_attempt(run_id, attempt, worker):
            raise LostGround(f"attempt {attempt} of run {run_id} is not the current one: its work is undone")
