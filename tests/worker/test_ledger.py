"""What the ledger claims: what the pool starts at once, and a little ahead only for slots that will soon be free."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DataError, Error, OperationalError

from scheduler_app.models.ids import new_id
from scheduler_app.store.work import Wanted
from scheduler_app.worker.ledger import HORIZON_LEAST, LONG, Delivery, Ledger

SLOTS = 2
SHORT = HORIZON_LEAST / 10
LOTS = 200


def a_ledger(*running: Any) -> Ledger:
    ledger = Ledger("one@test", lambda: SLOTS, lambda request: None, lambda call: None)
    ledger.open_for(new_id())
    ledger.learn("short", SHORT)
    ledger.learn("long", 60.0)
    ledger._running = {new_id(): each for each in running}
    for _ in range(LOTS):
        ledger.offer(Delivery(Wanted(new_id(), 0), "short", lambda *_: None, lambda: None))  # type: ignore[arg-type,return-value]
    return ledger


def a_request(task: str, age: float) -> Any:
    return SimpleNamespace(task=SimpleNamespace(name=task), accepted=time.monotonic() - age)


AHEAD = round(HORIZON_LEAST / SHORT)  # short runs that keep one slot busy for the horizon


@pytest.mark.parametrize(
    ("running", "claimed"),
    [
        ([], SLOTS + SLOTS * AHEAD),
        ([("short", 0), ("short", 0)], SLOTS * AHEAD),
        ([("long", 0)], 1 + AHEAD),
        ([("long", 0), ("short", 0)], AHEAD),
        ([("long", 0), ("long", 0)], 0),
        ([("never seen", 0), ("never seen", 0)], 0),
        ([("short", 2 * LONG), ("short", 2 * LONG)], 0),
    ],
    ids=["idle", "short ones", "a long one", "long and short", "long ones", "unknown ones", "short ones that hang"],
)
def test_short_runs_are_claimed_ahead_for_slots_that_will_soon_be_free(
    running: list[tuple[str, float]], claimed: int
) -> None:
    chosen = len(a_ledger(*(a_request(task, age) for task, age in running))._choose())
    assert abs(chosen - claimed) <= 1, "rounding may cost or give one"
    assert chosen >= min(claimed, SLOTS - len(running))


def test_nothing_is_claimed_once_the_worker_is_told_to_stop() -> None:
    ledger = a_ledger()
    ledger.close_to_claims()
    assert ledger._choose() == []


@pytest.mark.parametrize(
    ("together", "apart", "taken"),
    [
        (None, None, 3),
        (DataError("a zero byte"), None, 3),
        (OperationalError("gone"), None, 0),
        (DataError("a zero byte"), OperationalError("gone"), 0),
    ],
    ids=["all written", "a value refused", "the database away", "away while it is asked for each"],
)
def test_what_waits_is_written_or_still_waits(
    monkeypatch: pytest.MonkeyPatch, together: Error | None, apart: Error | None, taken: int
) -> None:
    closed: list[bool] = []
    away = SimpleNamespace(close=lambda: closed.append(True))
    monkeypatch.setattr("scheduler_app.worker.ledger.connection", away)
    waiting = deque([("a", 1), ("b", 2), ("c", 3)])

    def write(error: Error | None, letters: list[str]) -> None:
        assert letters == ["a", "b", "c"]
        if error:
            raise error

    ledger = a_ledger()
    found = ledger._take(waiting, lambda letters: write(together, letters), lambda letters: write(apart, letters))
    assert len(found) == taken
    assert [*found, *waiting] == [("a", 1), ("b", 2), ("c", 3)]
    assert bool(closed) == (not taken), "a connection that failed is not used again"
