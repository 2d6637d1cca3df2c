"""How long each loop of a beat waits, what it does meanwhile, and that no fault ends it: with everything else faked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError

from scheduler_app.beat import duties as module
from scheduler_app.beat.duties import BACKOFF_MOST, CARE_WAIT, FULL_WAIT, LOCKED_WAIT, Duties, Every, Loop
from scheduler_app.beat.gate import OpenGate
from scheduler_app.lifecycle.dispatch import Dispatched
from scheduler_app.lifecycle.elect import Fence
from scheduler_app.lifecycle.record import Recorded
from tests.support.programs import wait_until

FENCE = Fence("tests", 1)
BACKOFF = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, BACKOFF_MOST, BACKOFF_MOST]


class Election:
    """Stands for Leadership: leads from the start."""

    def __init__(self, holder: str, gate: Any, changed: Callable[[], None]) -> None:
        self.fence: Fence | None = FENCE
        self.changed = changed
        self.said: list[str] = []

    def step(self) -> Fence | None:
        return self.fence

    def lost(self) -> None:
        self.said.append("lost")

    def session_broken(self) -> None:
        self.said.append("session broken")

    def resign(self, reason: str) -> None:
        self.said.append("resigned")


class Work:
    """Stands for the lifecycle: answers, and remembers what was called. An answer that is an exception is raised."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.newest_first: list[bool] = []
        self.answers: dict[str, Any] = {
            "record": Recorded(), "dispatch": Dispatched(), "redispatch": 0, "reap": 0, "orphans": 0, "lift": 0,
        }  # fmt: skip

    def of(self, name: str) -> Any:
        self.called.append(name)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def record(self, fence: Fence, *, newest_first: bool) -> Recorded | None:
        assert fence is FENCE
        self.newest_first.append(newest_first)
        return self.of("record")

    def times(self, name: str) -> int:
        return self.called.count(name)


class Watch:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Bell:
    """Stands for an alarm; `takes` seconds pass when it is rung."""

    def __init__(self, watch: Watch, takes: float = 0.0) -> None:
        self.rung = 0
        self._watch, self._takes = watch, takes

    def ring(self) -> None:
        self.rung += 1
        self._watch.now += self._takes


class Stopping(threading.Event):
    """Stands for the event that ends the loops: remembers the waits and takes none; the last of them sets it."""

    def __init__(self, after: int = 1000) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._after = after

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        if len(self.waits) >= self._after:
            self.set()
        return self.is_set()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    held = Watch()
    monkeypatch.setattr(module, "time", held)
    return held


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work()
    monkeypatch.setattr(module, "Leadership", Election)
    monkeypatch.setattr(module, "Reaper", type("Reaper", (), {"reap": lambda _: made.of("reap")}))
    monkeypatch.setattr(module, "record", made.record)
    monkeypatch.setattr(module, "dispatch", lambda: made.of("dispatch"))
    monkeypatch.setattr(module, "redispatch", lambda: made.of("redispatch"))
    monkeypatch.setattr(module, "release_orphans", lambda: made.of("orphans"))
    monkeypatch.setattr(module, "lift_quarantine", lambda: made.of("lift"))
    return made


@pytest.fixture
def duties(work: Work, watch: Watch, settings: Any) -> Duties:
    """Not started: each test calls the steps itself."""
    settings.EVERYSLOT = settings.EVERYSLOT | {"loop": 1.0, "term": 5.0, "dispatch_timeout": 60.0}
    made = Duties("tests", OpenGate())
    for loop in (made._record, made._dispatch, made._care):
        loop.alarm = Bell(watch)  # type: ignore[assignment]
    return made


def rung(loop: Loop) -> int:
    return loop.alarm.rung  # type: ignore[attr-defined]


def stand_by(duties: Duties) -> None:
    duties._leadership.fence = None


class TestRecording:
    @pytest.mark.parametrize(
        ("done", "pause"),
        [
            pytest.param(Recorded(wait=0.3), 0.3, id="sleeps to the next slot"),
            pytest.param(Recorded(wait=40.0), 1.0, id="at most a loop"),
            pytest.param(Recorded(wait=None), 1.0, id="a loop where no job has a slot"),
            pytest.param(Recorded(runs=500, more=True, wait=-2.0), 0.0, id="not at all after a full batch"),
            pytest.param(Recorded(runs=500, more=True, locked=True, wait=40.0), 0.0, id="nor if part is locked"),
            pytest.param(Recorded(locked=True, wait=-2.0), LOCKED_WAIT, id="50 ms when only locked rows remain"),
            pytest.param(Recorded(locked=True, wait=40.0), LOCKED_WAIT, id="50 ms even if the next slot is far"),
        ],
    )
    def test_waits(self, duties: Duties, work: Work, done: Recorded, pause: float) -> None:
        work.answers["record"] = done
        assert duties._record_step() == pytest.approx(pause)

    def test_a_slot_that_came_meanwhile_is_not_waited_for(self, duties: Duties, work: Work) -> None:
        work.answers["record"] = Recorded(wait=-0.01)
        assert duties._record_step() <= 0

    def test_what_it_did_since_the_answer_is_taken_off_the_wait(self, duties: Duties, work: Work, watch: Watch) -> None:
        duties._dispatch.alarm = Bell(watch, takes=0.1)  # type: ignore[assignment]
        work.answers["record"] = Recorded(runs=1, wait=0.3)
        assert duties._record_step() == pytest.approx(0.2)

    def test_a_leader_comes_back_within_a_third_of_its_term(self, duties: Duties, settings: Any) -> None:
        settings.EVERYSLOT = settings.EVERYSLOT | {"term": 0.6}
        assert duties._record_step() == pytest.approx(0.2)

    def test_a_standby_waits_and_records_nothing(self, duties: Duties, work: Work) -> None:
        stand_by(duties)
        assert duties._record_step() == 1.0
        assert work.called == []

    def test_a_term_that_is_over_is_given_up_and_asked_for_soon(self, duties: Duties, work: Work) -> None:
        work.answers["record"] = None
        assert duties._record_step() == LOCKED_WAIT
        assert duties._leadership.said == ["lost"]  # type: ignore[attr-defined]

    def test_only_new_runs_wake_the_dispatcher(self, duties: Duties, work: Work) -> None:
        work.answers["record"] = Recorded(skipped=3)
        duties._record_step()
        assert rung(duties._dispatch) == 0
        work.answers["record"] = Recorded(runs=1)
        duties._record_step()
        assert rung(duties._dispatch) == 1

    def test_every_second_pass_over_a_backlog_takes_the_newest_first(self, duties: Duties, work: Work) -> None:
        for more in (False, True, True, True, False, False, True, False):
            work.answers["record"] = Recorded(runs=1, more=more)
            duties._record_step()
        assert work.newest_first == [False, False, True, False, True, False, False, True]

    @pytest.mark.parametrize("leads", [True, False], ids=["leader", "standby"])
    def test_each_answer_of_the_database_counts_as_contact(self, duties: Duties, watch: Watch, leads: bool) -> None:
        duties._leadership.fence = FENCE if leads else None
        watch.now += 10
        assert not duties.in_contact(10)
        duties._record_step()
        assert duties.in_contact(1)

    def test_no_answer_is_no_contact(self, duties: Duties, work: Work, watch: Watch) -> None:
        work.answers["record"] = OperationalError("away")
        watch.now += 10
        with pytest.raises(OperationalError):
            duties._record_step()
        assert not duties.in_contact(10)


class TestDispatching:
    @pytest.mark.parametrize(
        ("done", "pause"),
        [
            pytest.param(Dispatched(wait=0.3), 0.3, id="sleeps to the next run's time"),
            pytest.param(Dispatched(wait=40.0), 1.0, id="at most a loop"),
            pytest.param(Dispatched(), 1.0, id="a loop where no run waits"),
            pytest.param(Dispatched(published=2000, more=True, wait=0.0), 0.0, id="not at all after a full batch"),
            pytest.param(Dispatched(refused=2000, more=True, wait=0.0), 0.0, id="nor after one that was refused"),
            pytest.param(Dispatched(published=1, wait=0.0), 0.0, id="looks again after each that it published"),
            pytest.param(Dispatched(full=True), FULL_WAIT, id="for room while a window is used up"),
            pytest.param(Dispatched(full=True, wait=0.1), 0.1, id="for another queue's run, if that comes sooner"),
            pytest.param(Dispatched(full=True, wait=40.0), FULL_WAIT, id="for room, if that run comes later"),
            pytest.param(Dispatched(refused=1, wait=0.0), LOCKED_WAIT / 10, id="a little when all was refused"),
            pytest.param(Dispatched(wait=-1.0), LOCKED_WAIT / 10, id="a little for what another has locked"),
        ],
    )
    def test_waits(self, duties: Duties, done: Dispatched, pause: float) -> None:
        assert duties._dispatch_pause(done) == pytest.approx(pause)

    def test_a_broker_that_is_away_is_tried_ever_more_seldom_until_it_answers(self, duties: Duties) -> None:
        duties._stopping = stopping = Stopping()
        away = Dispatched(refused=1, reached=False, wait=0.0)
        assert [duties._dispatch_pause(away) for _ in range(7)] == [0.0] * 7
        assert stopping.waits == pytest.approx(BACKOFF[1:8])
        duties._dispatch_pause(Dispatched(published=1))
        duties._dispatch_pause(away)
        assert stopping.waits[7:] == pytest.approx(BACKOFF[1:2])

    def test_however_long_it_is_away(self, duties: Duties) -> None:
        duties._stopping = stopping = Stopping()
        for _ in range(2000):
            duties._dispatch_pause(Dispatched(reached=False))
        assert stopping.waits[-1] == BACKOFF_MOST

    def test_a_standby_waits_and_publishes_nothing(self, duties: Duties, work: Work) -> None:
        stand_by(duties)
        assert duties._dispatch_step() == 1.0
        assert work.called == []

    def test_silent_runs_are_looked_for_every_twelfth_of_the_timeout_and_only_while_the_broker_answers(
        self, duties: Duties, work: Work, watch: Watch
    ) -> None:
        duties._stopping = Stopping()
        work.answers["dispatch"] = Dispatched(reached=False)
        duties._dispatch_step()
        assert work.called == ["dispatch"]
        work.answers["dispatch"] = Dispatched()
        for _ in range(100):
            duties._dispatch_step()
            watch.now += 0.1
        assert work.times("redispatch") == 2
        assert work.times("dispatch") == 101


class TestCare:
    def test_a_standby_waits_and_reaps_nobody(self, duties: Duties, work: Work) -> None:
        stand_by(duties)
        assert duties._care_step() == CARE_WAIT
        assert work.called == []

    def test_the_dead_at_every_look_the_orphans_and_the_quarantined_now_and_then(
        self, duties: Duties, work: Work, watch: Watch
    ) -> None:
        for _ in range(240):
            assert duties._care_step() == CARE_WAIT
            watch.now += 0.5
        assert (work.times("reap"), work.times("orphans"), work.times("lift")) == (240, 24, 2)

    def test_looks_no_later_than_a_short_loop(self, duties: Duties, settings: Any) -> None:
        settings.EVERYSLOT = settings.EVERYSLOT | {"loop": 0.1}
        assert duties._care_step() == pytest.approx(0.1)

    @pytest.mark.parametrize(
        ("found", "dispatcher", "recorder"),
        [(None, 0, 0), ("reap", 1, 0), ("orphans", 1, 0), ("lift", 0, 1)],
        ids=["nothing", "an attempt that was lost", "an orphan", "a job taken back"],
    )
    def test_what_it_finds_wakes_whom_it_concerns(
        self, duties: Duties, work: Work, found: str | None, dispatcher: int, recorder: int
    ) -> None:
        if found:
            work.answers[found] = 1
        duties._care_step()
        assert (rung(duties._dispatch), rung(duties._record)) == (dispatcher, recorder)

    def test_a_new_leader_looks_at_once_for_jobs_set_aside(self, duties: Duties, work: Work) -> None:
        duties._care_step()
        duties._leadership.changed()  # type: ignore[attr-defined]
        assert (rung(duties._care), rung(duties._dispatch)) == (1, 1)
        duties._care_step()
        assert work.times("lift") == 2


def test_every_is_true_at_once_and_then_once_an_interval(watch: Watch) -> None:
    due = Every(5.0)
    said = []
    for _ in range(12):
        said.append(due())
        watch.now += 1
    assert said == [True, False, False, False, False] * 2 + [True, False]


class TestTogether:
    """The three loops in their threads."""

    @pytest.fixture
    def started(self, work: Work, settings: Any) -> Iterator[Duties]:
        settings.EVERYSLOT = settings.EVERYSLOT | {"loop": 0.02, "session_locks": False}
        made = Duties("tests", OpenGate())
        yield made
        made.stop()

    def test_no_fault_ends_a_loop(self, started: Duties, work: Work) -> None:
        for name in ("record", "dispatch", "orphans"):
            work.answers[name] = OperationalError("away")
        started.start()
        for name in ("record", "dispatch", "reap"):
            wait_until(lambda name=name: work.times(name) >= 3, what=f"{name} to be tried again")
        assert "session broken" in started._leadership.said  # type: ignore[attr-defined]
        work.answers |= {"record": Recorded(), "dispatch": Dispatched(), "orphans": 0}
        for name in ("record", "dispatch", "reap"):
            before = work.times(name)
            wait_until(lambda name=name, before=before: work.times(name) >= before + 5, what=f"{name} to go on")

    def test_a_broker_that_does_not_answer_delays_no_recording_and_no_reaping(
        self, started: Duties, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held, answers = threading.Event(), threading.Event()

        def dispatch() -> Dispatched:
            held.set()
            answers.wait(30)
            return Dispatched(reached=False)

        monkeypatch.setattr(module, "dispatch", dispatch)
        started.start()
        assert held.wait(10)
        before = work.times("record"), work.times("reap")
        wait_until(lambda: work.times("record") > before[0] + 5, what="recording to go on")
        wait_until(lambda: work.times("reap") > before[1] + 5, what="reaping to go on")
        answers.set()

    def test_a_stop_ends_all_three_and_gives_the_term_up(self, started: Duties, work: Work) -> None:
        started.start()
        started.stop()
        assert not any(loop._thread.is_alive() for loop in (started._record, started._dispatch, started._care))
        assert started._leadership.said == ["resigned"]  # type: ignore[attr-defined]
