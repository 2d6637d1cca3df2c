"""Elect: who records. The term row decides; the session lock only makes a death visible sooner (beat/term.py).

Guaranteed: epochs only grow, and a `Fence` that lost its term never becomes valid again. It would break if anything
else wrote the holder or the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.db import transaction

from scheduler_app.conf import conf
from scheduler_app.instrument import emit
from scheduler_app.store import record as record_store
from scheduler_app.store import term as store

SHARD: Final = 0
SESSION_KEY: Final = 0x65766572_79736C00  # "everysl" and the shard; an advisory lock key of this database
IDLE, LOCK, STATEMENT = 2.0, 1.0, 2.0
"""Seconds that a transaction of a leader may sit idle, wait for a lock, run one statement: well under the term."""


@dataclass(frozen=True, slots=True)
class Fence:
    """One beat's term: what every recording transaction must still find in the row."""

    holder: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Won:
    """A term just taken, and whether this session also holds the advisory lock."""

    fence: Fence
    session_locked: bool


def contend(holder: str) -> Won | None:
    """Take the term if it is free, has run out or its holder's session is gone; None while another leads."""
    state = store.read_term(SHARD, conf().term)
    if not state.open and not (state.session_locked and conf().session_locks):
        return None
    locked = conf().session_locks and store.lock_session(SESSION_KEY)
    if not locked and not state.open:
        return None
    epoch = None
    try:
        epoch = _take(holder, locked)
    finally:
        if locked and epoch is None:
            store.unlock_session(SESSION_KEY)
    if epoch is None:
        return None
    emit("term.taken", holder=holder, epoch=epoch, after=state.holder, session_locked=locked)
    return Won(Fence(holder, epoch), locked)


def _take(holder: str, locked: bool) -> int | None:
    with transaction.atomic():
        record_store.bound_transaction(IDLE, LOCK, STATEMENT)
        return store.take_term(SHARD, holder, conf().term, locked)


def lock_session(fence: Fence) -> bool:
    """Take the session lock for a term that was won without it; whether this session holds it now."""
    if not conf().session_locks or not store.lock_session(SESSION_KEY):
        return False
    if store.mark_session_lock(SHARD, fence.holder, fence.epoch, True):
        return True
    store.unlock_session(SESSION_KEY)
    return False


def release(fence: Fence, *, session_locked: bool) -> bool:
    """Give the term up and wake the standbys; False if another had taken it."""
    freed = store.free_term(SHARD, fence.holder, fence.epoch)
    if session_locked:
        unlock_session()
    if freed:
        store.notify_jobs()
        emit("term.released", holder=fence.holder, epoch=fence.epoch)
    return freed


def unlock_session() -> None:
    """Let go of the session lock of a term that is over, so that the new leader can have it."""
    store.unlock_session(SESSION_KEY)
