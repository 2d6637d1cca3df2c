"""One loop of a beat: no fault of a step ends it, a broken session is left, and it ends when it is told to."""

from __future__ import annotations

import logging
import threading

import pytest
from django.db import OperationalError

from scheduler_app.beat import duties as module
from scheduler_app.beat.duties import Loop
from tests.beat.test_duties import BACKOFF, Stopping


class Session:
    """Stands for Django's connection."""

    def __init__(self, *, opened: bool, usable: bool) -> None:
        self.connection = object() if opened else None
        self.closed = 0
        self._usable = usable

    def is_usable(self) -> bool:
        return self._usable

    def close(self) -> None:
        self.closed += 1


class TestLoop:
    @pytest.fixture(autouse=True)
    def session(self, monkeypatch: pytest.MonkeyPatch) -> Session:
        made = Session(opened=True, usable=True)
        monkeypatch.setattr(module, "connection", made)
        return made

    @pytest.mark.parametrize(
        "error", [OperationalError("away"), OSError("no broker"), KeyError("a bug")], ids=["database", "broker", "bug"]
    )
    def test_a_failing_step_is_noted_and_tried_again_ever_more_seldom(
        self, error: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        stopping, tried = Stopping(after=8), []

        def step() -> float:
            tried.append(1)
            raise error

        with caplog.at_level(logging.WARNING, "everyslot.beat"):
            Loop("record", "", stopping, step)._run()
        assert len(tried) == 8
        assert stopping.waits == pytest.approx(BACKOFF)
        assert [each.getMessage().partition(":")[0] for each in caplog.records] == ["record"] * 8
        assert all("trying again" in each.getMessage() for each in caplog.records)

    def test_a_step_that_succeeds_ends_the_backoff(self) -> None:
        stopping = Stopping(after=4)
        fails = iter([True, True, False, True, True])

        def step() -> float:
            if next(fails):
                raise OperationalError("away")
            return 0.0

        Loop("record", "", stopping, step)._run()
        assert stopping.waits == pytest.approx([0.1, 0.2, 0.1, 0.2])

    @pytest.mark.parametrize(
        ("opened", "usable", "kept"),
        [(True, True, True), (True, False, False), (False, False, False)],
        ids=["a session that works is kept, with its lock", "one that is broken is left", "one that never opened too"],
    )
    def test_after_a_failure(self, monkeypatch: pytest.MonkeyPatch, opened: bool, usable: bool, kept: bool) -> None:
        session, told = Session(opened=opened, usable=usable), []
        monkeypatch.setattr(module, "connection", session)
        loop = Loop("record", "", Stopping(after=1), lambda: 0.0, failed=lambda: told.append("broken"))
        loop._note(OperationalError("away"))
        assert (session.closed, told) == ((0, []) if kept else (1, ["broken"]))

    @pytest.mark.parametrize("error", [None, OperationalError("away")], ids=["an end", "an end that fails"])
    def test_its_end_is_called_once_and_its_session_closed(self, session: Session, error: Exception | None) -> None:
        stopping, ended = threading.Event(), []

        def step() -> float:
            stopping.set()
            return 30.0

        def end() -> None:
            ended.append(1)
            if error:
                raise error

        Loop("record", "", stopping, step, end=end)._run()
        assert (ended, session.closed) == ([1], 1)

    def test_a_long_wait_ends_when_it_is_joined(self) -> None:
        stopping, waiting = threading.Event(), threading.Event()

        def step() -> float:
            waiting.set()
            return 300.0

        loop = Loop("care", "", stopping, step)
        loop.start()
        assert waiting.wait(10)
        stopping.set()
        loop.join()
        assert not loop._thread.is_alive()
