"""Progress and cancelling as a task sees them: what is asked of the database, and how often."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from scheduler_app.clock import HeldClock
from scheduler_app.core.errors import Cancelled
from scheduler_app.models.ids import new_id
from scheduler_app.worker import context
from scheduler_app.worker.context import CurrentRun

NOW = datetime(2026, 12, 1, tzinfo=UTC)


class Database:
    """Keeps what was reported, on a clock that is held."""

    def __init__(self) -> None:
        self.clock = HeldClock(NOW)
        self.reported: list[float | None] = []
        self.asked_to_stop = False

    def report(self, run_id: UUID, attempt: int, worker: UUID, percent: float | None, message: str) -> bool:
        self.reported.append(percent)
        return self.asked_to_stop


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    database = Database()
    monkeypatch.setattr(context, "report", database.report)
    monkeypatch.setattr(context, "time", database.clock)
    return database


def a_run(**facts: Any) -> CurrentRun:
    return CurrentRun(new_id(), 1, NOW, NOW, 900, worker=new_id(), **facts)


def test_a_check_just_before_does_not_swallow_the_progress(database: Database) -> None:
    run = a_run()
    for percent in (10, 20, 30):
        run.check()
        run.progress(percent)
        database.clock.advance(0.6)
    assert [each for each in database.reported if each is not None] == [10, 20, 30]


def test_progress_is_written_twice_a_second_at_most_but_its_end_always(database: Database) -> None:
    run = a_run()
    for percent in (1, 2, 3, 100):
        run.progress(percent)
        database.clock.advance(0.1)
    assert database.reported == [1, 100]


def test_writing_progress_also_asks_whether_to_stop(database: Database) -> None:
    run = a_run()
    database.asked_to_stop = True
    with pytest.raises(Cancelled):
        run.progress(10)
    with pytest.raises(Cancelled):
        run.check()
    assert database.reported == [10]


def test_progress_that_says_all_is_done_does_not_stop_what_is_done(database: Database) -> None:
    run = a_run()
    database.asked_to_stop = True
    run.progress(100)
    assert database.reported == [100]


def test_a_step_is_not_begun_by_a_run_that_was_asked_to_stop(database: Database) -> None:
    run = a_run()
    database.asked_to_stop = True
    with pytest.raises(Cancelled):
        run.step("pay", pytest.fail, "it was begun")


def test_a_run_that_was_asked_to_stop_stays_so(database: Database) -> None:
    run = a_run()
    database.asked_to_stop = True
    assert run.cancelled
    database.asked_to_stop = False
    database.clock.advance(10)
    assert run.cancelled


def test_a_percentage_out_of_bounds_is_brought_into_them(database: Database) -> None:
    run = a_run()
    run.progress(-5)
    run.progress(500)
    assert database.reported == [0, 100]
