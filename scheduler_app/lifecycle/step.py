"""Step: a named block of a task that is done once a run.

Guaranteed: the block's database work and the note that it is done commit together, and no two attempts run the block at
the same time. It would break if the note were looked for before the lock is held, or in the lock's own statement,
whose snapshot is older than the lock. What the block does outside of the database is done again if its process dies
between doing it and the commit; give other systems the run's idempotency key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import transaction

from scheduler_app.core.errors import InvalidDefinition, RetryLater
from scheduler_app.core.payload import decode, encode_arguments
from scheduler_app.store.step import done_step, note_step, try_lock_step

MAX_NAME = 200
LOOK_AGAIN = 5.0  # seconds


def run_step(run_id: UUID, name: str, work: Callable[[], Any]) -> Any:
    """The result of `work`, now or as remembered; a savepoint where a transaction is open, else its own transaction.

    Raises RetryLater while another attempt is in the block, InvalidDefinition for a bad name or a result that is no
    JSON or over 256 KB, and what `work` raises; then nothing is remembered.
    """
    _check(name)
    with transaction.atomic():
        if not try_lock_step(run_id, name):
            raise RetryLater(LOOK_AGAIN, f"another attempt is in step {name!r}")
        encoded = done_step(run_id, name)
        if encoded is None:
            encoded = encode_arguments(f"result of step {name!r}", work())
            note_step(run_id, name, encoded)
    return decode(encoded)


def recall(run_id: UUID, name: str, default: Any = None) -> Any:
    """The result of a step that is done, else `default`."""
    _check(name)
    encoded = done_step(run_id, name)
    return default if encoded is None else decode(encoded)


def _check(name: str) -> None:
    if not 0 < len(name) <= MAX_NAME or "\0" in name:
        raise InvalidDefinition("step", f"a step's name has 1 to {MAX_NAME} characters; got {name[:MAX_NAME]!r}")
