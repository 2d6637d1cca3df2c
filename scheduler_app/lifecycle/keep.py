"""Keep: the worker's lease. One row a worker, one UPDATE a heartbeat; losing the row means that others took over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from scheduler_app.conf import conf
from scheduler_app.lifecycle.elect import LOCK
from scheduler_app.store import keep as store
from scheduler_app.store.reap import bound_session


@dataclass(frozen=True, slots=True)
class Identity:
    """One start of one worker. `lock_key` is the 64-bit key of its session advisory lock."""

    id: UUID
    name: str
    hostname: str
    pid: int
    concurrency: int
    queues: tuple[str, ...]

    @property
    def lock_key(self) -> int:
        return int.from_bytes(self.id.bytes[8:], "big", signed=True)


def open_lease(me: Identity) -> bool:
    """Take the session lock and make (or, after a lost session, renew) the worker's row; False if declared dead.

    From now on no statement of this session waits long for a lock: what a task holds must not cost the lease.
    """
    if conf().session_locks:
        bound_session(LOCK)
    with transaction.atomic():
        locked = conf().session_locks and store.hold_session_lock(me.lock_key)
        return store.open_worker(
            me.id,
            name=me.name,
            hostname=me.hostname,
            pid=me.pid,
            concurrency=me.concurrency,
            queues=me.queues,
            lease=conf().lease,
            lock_key=me.lock_key,
            locked=locked,
        )


def renew_lease(worker: UUID) -> bool:
    """One heartbeat; False once this worker was declared dead."""
    return store.beat_worker(worker)


def running_now(worker: UUID) -> Sequence[tuple[UUID, int, float | None]]:
    """(run, attempt, seconds since it was asked to stop, if it was) of everything under this worker's name."""
    return store.running_now(worker)


def close_lease(worker: UUID, reason: str) -> None:
    """End the worker's row after its last finish."""
    store.stop_worker(worker, reason)
