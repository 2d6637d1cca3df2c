"""Who is declared dead, by a clock that the test holds. Time that nobody observed must never count."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from scheduler_app.clock import HeldClock
from scheduler_app.lifecycle import keep, reap
from scheduler_app.lifecycle.keep import Identity
from scheduler_app.lifecycle.reap import Reaper
from scheduler_app.models import Attempt, JobRun, Worker
from scheduler_app.models.ids import new_id
from scheduler_app.store.keep import beat_worker
from tests.support.beats import second_ago
from tests.support.definitions import a_run

pytestmark = pytest.mark.django_db

LEASE = 30.0


class Watch:
    """A reaper that looks once a second of the clock it is given."""

    def __init__(self) -> None:
        self.clock = HeldClock(datetime(2026, 12, 1, tzinfo=UTC))
        self.reaper = Reaper(self.clock)
        self.reaper.reap()

    def look(self, seconds: int, each: Any = lambda: None) -> int:
        ended = 0
        for _ in range(seconds):
            self.clock.advance(1)
            each()
            ended += self.reaper.reap()
        return ended


@pytest.fixture
def worker() -> UUID:
    return a_worker().id


def a_worker(**columns: Any) -> Worker:
    given = {"name": "w", "lease": LEASE, "lock_key": 77, "locked": False} | columns
    return Worker.objects.create(**given)


def running_under(worker: UUID) -> JobRun:
    return a_run(status="running", locked_by=worker)


def is_stopped(worker: UUID) -> bool:
    return Worker.objects.get(id=worker).stopped_at is not None


def test_a_worker_silent_for_a_lease_is_dead_and_its_run_goes_on(worker: UUID) -> None:
    run = running_under(worker)
    watch = Watch()
    assert watch.look(30) == 0
    assert not is_stopped(worker)
    assert watch.look(1) == 1
    run.refresh_from_db()
    assert (run.status, run.attempts, run.locked_by) == ("queued", 1, None)
    assert Attempt.objects.get().outcome == "worker_lost"
    assert Worker.objects.get(id=worker).end_reason == "lease_expired"


def test_a_heartbeat_starts_the_count_anew(worker: UUID) -> None:
    watch = Watch()
    watch.look(29)
    beat_worker(worker)
    assert watch.look(31) == 0
    assert not is_stopped(worker)
    watch.look(1)
    assert is_stopped(worker)


def test_a_heartbeat_written_by_another_clock_is_judged_by_its_change_alone(worker: UUID) -> None:
    Worker.objects.filter(id=worker).update(heartbeat_at=second_ago(86_400))
    watch = Watch()
    watch.look(20)
    assert not is_stopped(worker)


def test_time_in_which_the_reaper_slept_does_not_count(worker: UUID) -> None:
    watch = Watch()
    watch.look(5)
    watch.clock.advance(3600)
    assert watch.reaper.reap() == 0
    assert not is_stopped(worker), "an hour that nobody saw counts as two loops"
    watch.look(24)
    assert is_stopped(worker)


def test_a_broken_session_starts_every_count_anew(worker: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    watch.look(29)
    monkeypatch.setattr(reap, "connection", type("Other", (), {"connection": object()}))
    watch.look(30)
    assert not is_stopped(worker)


def test_a_restarted_server_starts_every_count_anew_even_behind_a_pooler(
    worker: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    watch.look(29)
    look = reap.store.watch_workers
    later = datetime(2027, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(reap.store, "watch_workers", lambda: (later, look()[1]))
    watch.look(30)
    assert not is_stopped(worker)


@pytest.fixture
def locked_worker() -> Identity:
    """A worker whose session lock is held by this very session."""
    me = Identity(new_id(), "w", "host", 1, 1, ("default",))
    assert keep.open_lease(me)
    return me


def unlock(me: Identity) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [me.lock_key])
        assert cursor.fetchone() == (True,)


def test_a_session_lock_that_was_seen_and_is_gone_tells_of_a_death(locked_worker: Identity) -> None:
    running_under(locked_worker.id)
    watch = Watch()
    watch.look(2)
    unlock(locked_worker)
    assert watch.look(1) == 0
    assert watch.look(1) == 1
    assert Worker.objects.get(id=locked_worker.id).end_reason == "session_lost"


def test_a_worker_that_came_and_died_between_two_looks_is_dead_at_once_too() -> None:
    watch = Watch()
    watch.look(2)
    me = Identity(new_id(), "w", "host", 1, 1, ("default",))
    assert keep.open_lease(me)
    running_under(me.id)
    unlock(me)
    assert watch.look(1) == 0
    assert watch.look(1) == 1
    assert Worker.objects.get(id=me.id).end_reason == "session_lost"


def test_a_worker_without_a_lock_that_came_between_two_looks_has_its_whole_lease() -> None:
    watch = Watch()
    watch.look(2)
    worker = a_worker().id
    watch.look(31)
    assert not is_stopped(worker)
    watch.look(1)
    assert is_stopped(worker)


def test_a_worker_that_reconnects_within_the_grace_lives(locked_worker: Identity) -> None:
    watch = Watch()
    watch.look(2)
    unlock(locked_worker)
    watch.look(1)
    assert keep.open_lease(locked_worker)
    watch.look(5)
    assert not is_stopped(locked_worker.id)
    unlock(locked_worker)


def test_a_heartbeat_without_the_lock_is_a_life_sign(locked_worker: Identity) -> None:
    watch = Watch()
    watch.look(2)
    unlock(locked_worker)
    watch.look(20, lambda: beat_worker(locked_worker.id))
    assert not is_stopped(locked_worker.id)


def test_a_lock_that_this_session_never_saw_held_proves_nothing_by_its_absence() -> None:
    worker = a_worker(locked=True).id
    watch = Watch()
    watch.look(29)
    assert not is_stopped(worker)


def test_the_end_of_a_worker_that_was_cut_off_is_completed() -> None:
    worker = a_worker(stopped_at=second_ago(60), end_reason="lease_expired").id
    running_under(worker)
    assert Watch().clock is not None
    assert JobRun.objects.get().status == "queued"


def test_only_long_stopped_workers_without_runs_are_forgotten() -> None:
    week = 8 * 86_400
    a_worker(stopped_at=second_ago(week))
    recent = a_worker(stopped_at=second_ago(60))
    alive = a_worker()
    Watch()
    assert set(Worker.objects.all()) == {recent, alive}
