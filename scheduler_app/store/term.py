"""The term row and the leader's session lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from scheduler_app.store.statements import load, rows

_SQL = load("term.sql")


@dataclass(frozen=True, slots=True)
class TermState:
    """The term as it stands; `open` if it is free or has run out."""

    holder: str
    epoch: int
    open: bool
    session_locked: bool


def read_term(shard: int, duration: float) -> TermState:
    """The term of a shard; the row is made if it is missing."""
    found = rows(_SQL["read_term"], {"shard": shard})
    if not found:
        rows(_SQL["make_term"], {"shard": shard, "duration": duration})
        found = rows(_SQL["read_term"], {"shard": shard})
    return TermState(*found[0])


def take_term(shard: int, holder: str, duration: float, locked: bool) -> int | None:
    """Take the term if it may be taken; the new epoch, or None."""
    params = {"shard": shard, "holder": holder, "duration": duration, "locked": locked}
    found = rows(_SQL["take_term"], params)
    return found[0][0] if found else None


def renew_term(shard: int, holder: str, epoch: int) -> datetime | None:
    """Renew and lock the term; the database's time, or None if another leads."""
    found = rows(_SQL["renew_term"], {"shard": shard, "holder": holder, "epoch": epoch})
    return found[0][0] if found else None


def mark_session_lock(shard: int, holder: str, epoch: int, locked: bool) -> bool:
    """Note whether the leader's session holds the lock; False if another leads."""
    params = {"shard": shard, "holder": holder, "epoch": epoch, "locked": locked}
    return bool(rows(_SQL["mark_session_lock"], params))


def free_term(shard: int, holder: str, epoch: int) -> bool:
    """Give the term up; False if it was not held any more."""
    return bool(rows(_SQL["free_term"], {"shard": shard, "holder": holder, "epoch": epoch}))


def lock_session(key: int) -> bool:
    """Try to take the advisory lock for this session."""
    return bool(rows(_SQL["lock_session"], {"key": key})[0][0])


def unlock_session(key: int) -> None:
    """Give the advisory lock back."""
    rows(_SQL["unlock_session"], {"key": key})


def database_time() -> datetime:
    """The database's time."""
    now: datetime = rows(_SQL["database_time"])[0][0]
    return now


def notify_jobs() -> None:
    """Wake every beat."""
    rows(_SQL["notify_jobs"])
