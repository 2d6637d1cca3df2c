"""A worker never goes on without its ledger or its keeper."""

from __future__ import annotations

import pytest
from celery.worker import state

from scheduler_app.worker import vital
from scheduler_app.worker.vital import vital_thread


@pytest.fixture(autouse=True)
def _flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "should_terminate", None)
    monkeypatch.setattr(vital, "failed", set())


def ends(thread: object) -> None:
    thread.start()  # type: ignore[attr-defined]
    thread.join(30)  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [ValueError("a fault of ours"), SystemExit(3), MemoryError()])
def test_what_ends_such_a_thread_stops_the_worker_with_a_failure(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    ends(vital_thread("ledger", fail))
    assert state.should_terminate == 1
    assert "ledger has failed; this worker stops" in caplog.text


def test_a_thread_that_ends_by_itself_stops_nothing() -> None:
    ends(vital_thread("ledger", lambda: None))
    assert state.should_terminate is None
