"""The worker's row and its session lock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

from scheduler_app.store.statements import load, rows

_SQL = load("keep.sql")


def open_worker(
    worker: UUID,
    *,
    name: str,
    hostname: str,
    pid: int,
    concurrency: int,
    queues: Sequence[str],
    lease: float,
    lock_key: int,
    locked: bool,
) -> bool:
    """Make the worker's row, or renew it after a lost session; False if it was declared dead meanwhile."""
    params = {
        "id": worker,
        "name": name,
        "hostname": hostname,
        "pid": pid,
        "concurrency": concurrency,
        "queues": json.dumps(list(queues)),
        "lease": lease,
        "lock_key": lock_key,
        "locked": locked,
    }
    return bool(rows(_SQL["open_worker"], params))


def beat_worker(worker: UUID) -> bool:
    """Renew the lease; False once this worker was declared dead."""
    return bool(rows(_SQL["beat_worker"], {"id": worker}))


def stop_worker(worker: UUID, reason: str) -> bool:
    """End the worker's row; whether this call did it."""
    return bool(rows(_SQL["stop_worker"], {"id": worker, "reason": reason}))


def hold_session_lock(key: int) -> bool:
    """Take the advisory lock for this session."""
    return bool(rows(_SQL["hold_session_lock"], {"key": key})[0][0])


def running_now(worker: UUID) -> list[tuple[UUID, int, float | None]]:
    """(run, attempt, seconds since it was asked to stop, if it was) of everything under this worker's name."""
    return [(row[0], row[1], row[2]) for row in rows(_SQL["running_now"], {"id": worker})]
