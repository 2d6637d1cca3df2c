"""The term between several sessions: who gets it, when, and what the session lock proves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import connection

from scheduler_app.beat.gate import OpenGate
from scheduler_app.beat.term import Leadership
from scheduler_app.conf import conf
from scheduler_app.lifecycle import elect
from scheduler_app.lifecycle.elect import Fence, Won
from scheduler_app.lifecycle.record import record
from scheduler_app.models import Term
from tests.support.beats import second_ago
from tests.support.brokers import database_url

pytestmark = [pytest.mark.race, pytest.mark.django_db(transaction=True)]


class Session:
    """A thread with a database connection of its own, which does one thing after the other."""

    def __init__(self) -> None:
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._work: Callable[[], Any] | None = None
        self._result: Any = None
        self.pid = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __call__(self, work: Callable[[], Any]) -> Any:
        self._work = work
        self._go.release()
        assert self._done.acquire(timeout=30)
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def end(self) -> None:
        """The session ends as a killed process's does."""
        self._work = None
        self._go.release()
        self._thread.join(10)

    def _run(self) -> None:
        while self._go.acquire() and self._work is not None:
            try:
                self._result = self._work()
            except Exception as error:
                self._result = error
            self._done.release()
        connection.close()


@contextmanager
def sessions(number: int) -> Iterator[list[Session]]:
    made = [Session() for _ in range(number)]
    try:
        yield made
    finally:
        for session in made:
            session.end()


def term() -> Term:
    return Term.objects.get(shard=elect.SHARD)


def run_out() -> None:
    Term.objects.update(renewed_at=second_ago(60))


@pytest.fixture(autouse=True)
def _free_term() -> Iterator[None]:
    Term.objects.all().delete()
    yield
    Term.objects.all().delete()


@pytest.fixture
def _no_session_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = replace(conf(), session_locks=False)
    monkeypatch.setattr(elect, "conf", lambda: changed)


def test_one_of_many_gets_a_free_term() -> None:
    with sessions(6) as made:
        gate = threading.Barrier(6)

        def contend(name: str) -> Won | None:
            gate.wait(20)
            return elect.contend(name)

        won: list[Won | None] = []
        threads = [
            threading.Thread(target=lambda s=s, n=n: won.append(s(lambda: contend(f"beat {n}"))))
            for n, s in enumerate(made)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        (winner,) = [each for each in won if each is not None]
    assert term().holder == winner.fence.holder
    assert winner.fence.epoch == term().epoch == 1


def test_a_standby_leaves_a_living_term_and_its_lock_alone() -> None:
    with sessions(2) as (leader, standby):
        won = leader(lambda: elect.contend("leader"))
        assert won.session_locked
        assert standby(lambda: elect.contend("standby")) is None
        assert leader(lambda: record(won.fence)) is not None


def test_a_dead_session_gives_the_term_to_the_next_at_once() -> None:
    with sessions(2) as (leader, standby):
        first = leader(lambda: elect.contend("leader"))
        leader.end()
        second = None
        while second is None:  # PostgreSQL notices the end of a session within milliseconds
            second = standby(lambda: elect.contend("standby"))
        assert second.fence.epoch == first.fence.epoch + 1
        assert second.session_locked
        assert standby(lambda: record(first.fence)) is None


@pytest.mark.usefixtures("_no_session_locks")
def test_behind_a_pooler_only_a_term_that_has_run_out_can_be_taken() -> None:
    with sessions(2) as (leader, standby):
        first = leader(lambda: elect.contend("leader"))
        assert not first.session_locked
        leader.end()
        assert standby(lambda: elect.contend("standby")) is None
        run_out()
        second = standby(lambda: elect.contend("standby"))
        assert second.fence == Fence("standby", first.fence.epoch + 1)


def test_a_term_that_ran_out_is_taken_though_the_old_session_lives_and_its_lock_follows_later() -> None:
    with sessions(2) as (old, new):
        beats = [Leadership(name, OpenGate()) for name in ("old", "new")]
        old(beats[0].step)
        run_out()
        fence = new(beats[1].step)
        assert fence is not None
        assert not term().session_locked, "the frozen leader still has the lock"
        assert old(lambda: record(beats[0].fence)) is None
        old(beats[0].lost)
        assert beats[0].fence is None
        assert new(beats[1].step) == fence
        assert term().session_locked, "the lock was asked for again"


def test_a_clean_end_frees_term_and_lock_and_tells_the_others() -> None:
    with sessions(2) as (leader, standby), psycopg.connect(database_url(), autocommit=True) as ear:
        ear.execute("LISTEN everyslot_jobs")
        beat = Leadership("leader", OpenGate())
        leader(beat.step)
        leader(lambda: beat.resign("test"))
        assert next(ear.notifies(timeout=10)).channel == "everyslot_jobs"
        won = standby(lambda: elect.contend("standby"))
        assert won.session_locked
        assert beat.fence is None


def test_resigning_a_term_that_is_another_s_by_now_changes_nothing() -> None:
    with sessions(2) as (old, new):
        first = old(lambda: elect.contend("old"))
        run_out()
        second = new(lambda: elect.contend("new"))
        assert not old(lambda: elect.release(first.fence, session_locked=True))
        assert term().holder == "new"
        assert new(lambda: record(second.fence)) is not None


def test_a_gate_that_shuts_makes_the_leader_stand_by() -> None:
    class Gate(OpenGate):
        open = True

        def may_lead(self) -> bool:
            return self.open

        may_contend = may_lead

    with sessions(2) as (leader, standby):
        gate = Gate()
        beat = Leadership("leader", gate)
        assert leader(beat.step) is not None
        gate.open = False
        assert leader(beat.step) is None
        assert standby(lambda: elect.contend("standby")) is not None
        gate.open = True
        assert leader(beat.step) is None


def test_epochs_only_grow() -> None:
    with sessions(1) as (beat,):
        epochs = []
        for n in range(4):
            won = beat(lambda n=n: elect.contend(f"beat {n}"))
            epochs.append(won.fence.epoch)
            beat(lambda won=won: elect.release(won.fence, session_locked=won.session_locked))
    assert epochs == [1, 2, 3, 4]
    assert term().transitions == 4
