"""Reap: end the attempts of dead workers.

Guaranteed: a worker is declared dead only if its heartbeat did not move for one lease by this process's own monotonic
clock, counted while this process and its database session were awake and unbroken; or if its session lock, seen held
by this same session, stayed away for a grace while the heartbeat did not move. A row that comes up between two looks
of one session is as good as seen: it commits only while its lock is held. A database restart, a stall of either side
or a stepped clock kills nobody: they stop the count. It would break if time that nobody observed were counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import OperationalError, connection

from scheduler_app.clock import Clock, SystemClock
from scheduler_app.conf import conf
from scheduler_app.instrument import emit
from scheduler_app.lifecycle.elect import LOCK
from scheduler_app.lifecycle.lose import lose_worker
from scheduler_app.store import reap as store
from scheduler_app.store.reap import Sighting

STEP: Final = 2.0  # loop intervals; a longer pause between two looks counts as that long, the rest was a stall
KEEP: Final = 7 * 86_400.0  # seconds that the row of a stopped worker is kept
LIMIT: Final = 100
TIDY_EVERY: Final = 10.0  # seconds


@dataclass(slots=True)
class _Watched:
    """What this session has seen of a worker; `silent` and `unlocked` are observed seconds."""

    beats: int
    silent: float = 0.0
    lock_seen: bool = False
    unlocked: float = 0.0


class Reaper:
    """Remembers how long each worker has been silent; used by one thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._watched: dict[UUID, _Watched] = {}
        self._session: tuple[object, ...] = ()
        self._looked: float | None = None
        self._tidied: float | None = None

    def reap(self) -> int:
        """Look at the workers once, and end the attempts of those that are dead; how many attempts ended."""
        server_started, sightings = store.watch_workers()
        anew = self._start_anew_if_broken(server_started)
        passed = self._passed()
        seen = {sighting.id for sighting in sightings}
        self._watched = {key: kept for key, kept in self._watched.items() if key in seen}
        for each in sightings:
            if each.id not in self._watched:  # younger than the last look, so its silence begins with this one
                self._watched[each.id] = _Watched(each.beats, silent=-passed, lock_seen=each.locked and not anew)
        dead = [(each.id, reason) for each in sightings if (reason := self._look(each, passed))]
        if self._tidying_is_due():
            dead += [(each, "worker_stopped") for each in store.workers_with_leftovers(LIMIT)]
            store.forget_workers(KEEP, LIMIT)
        return sum(_lose(worker, reason) for worker, reason in dead)

    def _start_anew_if_broken(self, server_started: datetime) -> bool:
        """Nothing that an earlier session saw counts: while it was broken, heartbeats could not be written either.

        The client's connection names the session, since behind a pooler server sessions change all the time; the
        server's start covers a restart that a pooler hides.
        """
        session = (connection.connection, server_started)
        if session == self._session:
            return False
        self._session, self._watched, self._looked = session, {}, None
        if conf().session_locks:
            store.bound_session(LOCK)
        return True

    def _passed(self) -> float:
        now, before = self._clock.monotonic(), self._looked
        self._looked = now
        return 0.0 if before is None else min(now - before, STEP * conf().loop)

    def _look(self, worker: Sighting, passed: float) -> str:
        """Count; the reason if the worker is dead, else nothing."""
        watched = self._watched[worker.id]
        if watched.beats != worker.beats:
            self._watched[worker.id] = _Watched(worker.beats, lock_seen=watched.lock_seen or worker.lock_held)
            return ""
        watched.silent += passed
        watched.lock_seen = watched.lock_seen or worker.lock_held
        watched.unlocked = 0.0 if worker.lock_held or not watched.lock_seen else watched.unlocked + passed
        if watched.silent > worker.lease:
            return "lease_expired"
        if worker.locked and watched.unlocked >= conf().session_lock_grace:
            return "session_lost"
        return ""

    def _tidying_is_due(self) -> bool:
        now = self._clock.monotonic()
        due = self._tidied is None or now - self._tidied >= TIDY_EVERY
        if due:
            self._tidied = now
        return due


def _lose(worker: UUID, reason: str) -> int:
    """End a worker's attempts; one whose rows are locked just now is left for the next look, and stops no other."""
    try:
        return lose_worker(worker, reason)
    except OperationalError as error:
        if not connection.is_usable():
            raise
        emit("worker.lose_postponed", worker=worker, error=str(error))
        return 0
