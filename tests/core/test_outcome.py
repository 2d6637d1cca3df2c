"""Every way out of an attempt, with attempts left and used up: what is written, and that no number comes twice."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import Any

import pytest

from scheduler_app.core.limits import DELAY_MOST
from scheduler_app.core.outcome import FREE_RETRY_SECONDS, Ending, Way, settle
from scheduler_app.core.retry import RetryPolicy
from scheduler_app.core.states import Status, may_move

POLICY = RetryPolicy(max_attempts=3, backoff=10, backoff_max=600, jitter=True)
BACKOFF = {1: 10.0, 2: 20.0, 3: 40.0}  # the bound after attempt n; the draw below takes half of it
AT_ONCE = {
    Way.RETURNED: (Status.SUCCEEDED, ""),
    Way.IGNORED: (Status.SUCCEEDED, "ignored"),
    Way.FAILED: (Status.DEAD, "failed"),
    Way.REJECTED: (Status.DEAD, "rejected"),
    Way.GAVE_UP: (Status.DEAD, "gave_up"),
    Way.CANCELLED: (Status.CANCELLED, "requested"),
}
"""These end a run, whatever is left and whatever the task asked for."""

USED_UP = {
    Way.RETRY: "attempts_exhausted", Way.LOST: "lost", Way.WORKER_LOST: "lost", Way.TIMED_OUT: "timed_out",
}  # fmt: skip
"""These go on while attempts are left, and say why the run is dead otherwise."""


COSTS_NOTHING = {Way.GIVEN_BACK, Way.STOPPED}
"""These go on at once."""


def half(low: float, high: float) -> float:
    assert low == 0.0
    return high / 2


def end(way: Way, attempt: int = 1, most: int = 3, wanted: Any = None, free: bool = False) -> Ending:
    return settle(
        way, attempt=attempt, max_attempts=most, policy=POLICY, uniform=half, wanted_delay=wanted, free=free,
        error="boom", traceback="line 1", result='"ok"',
    )  # fmt: skip


def expected(way: Way, attempt: int, most: int, wanted: float | None, free: bool) -> tuple[Status, str, float, int]:
    """(state, reason, delay, extra attempts), as DESIGN says it."""
    if way in AT_ONCE:
        return (*AT_ONCE[way], 0.0, 0)
    if way in COSTS_NOTHING or (way is Way.WORKER_LOST and free):
        return Status.QUEUED, "", 0.0, 1
    asked = None if wanted is None else max(0.0, wanted)
    if way is Way.REQUEUED or free:
        return Status.QUEUED, "", max(FREE_RETRY_SECONDS, asked or 0.0), 1
    if attempt >= most:
        return Status.DEAD, USED_UP[way], 0.0, 0
    return Status.QUEUED, "", BACKOFF[attempt] / 2 if asked is None else asked, 0


@pytest.mark.parametrize("free", [False, True], ids=["costs", "free"])
@pytest.mark.parametrize("wanted", [None, 7.5, 0.0, -3.0], ids=["backoff", "asked", "at-once", "in-the-past"])
@pytest.mark.parametrize(("attempt", "most"), [(1, 3), (2, 3), (3, 3), (1, 1)], ids=["first", "left", "last", "only"])
@pytest.mark.parametrize("way", list(Way), ids=str)
def test_an_attempt_ends_as_the_table_says(way: Way, attempt: int, most: int, wanted: float | None, free: bool) -> None:
    ending = end(way, attempt, most, wanted, free)
    assert (ending.status, ending.reason, ending.delay, ending.extra_attempts) == expected(
        way, attempt, most, wanted, free
    )
    assert ending.way is way
    assert may_move(Status.RUNNING, ending.status)
    assert ending.rejects_message is (ending.status is Status.DEAD)


def test_every_way_is_in_the_table() -> None:
    assert set(AT_ONCE) | set(USED_UP) | COSTS_NOTHING | {Way.REQUEUED} == set(Way)


@pytest.mark.parametrize("way", list(Way), ids=str)
def test_a_success_keeps_its_result_and_every_other_end_its_error(way: Way) -> None:
    ending = end(way)
    if ending.status is Status.SUCCEEDED:
        assert (ending.result, ending.error, ending.traceback) == ('"ok"', "", "")
    else:
        assert (ending.result, ending.error, ending.traceback) == (None, "boom", "line 1")


@pytest.mark.parametrize("way", list(Way), ids=str)
def test_a_dead_run_always_has_a_reason_that_its_column_holds(way: Way) -> None:
    for attempt in (1, 3):
        ending = end(way, attempt)
        assert (ending.reason != "") >= (ending.status is Status.DEAD)
        assert len(ending.reason) <= 40
        assert len(way.value) <= 20, "the outcome column of an attempt"


@pytest.mark.parametrize(("way", "attempt", "free"), list(product(Way, (1, 2, 3), (False, True))))
def test_a_run_that_goes_on_has_a_number_left_for_its_next_attempt(way: Way, attempt: int, free: bool) -> None:
    ending = end(way, attempt, most=3, free=free)
    if ending.status is Status.QUEUED:
        assert attempt < 3 + ending.extra_attempts, "it could never be claimed again"


def test_attempts_that_cost_nothing_leave_the_costly_ones_as_many_as_before() -> None:
    """A thousand lives with random ends: numbers go up by one, and exactly three attempts count in each."""
    chance = random.Random(7)
    for _ in range(1000):
        attempt, most, counted = 0, 3, 0
        while True:
            assert attempt < most, "claimed beyond its attempts"
            attempt += 1
            way = chance.choice([*USED_UP, *COSTS_NOTHING, Way.REQUEUED])
            free = chance.random() < 0.3
            ending = settle(way, attempt=attempt, max_attempts=most, policy=POLICY, uniform=half, free=free)
            most += ending.extra_attempts
            counted += 0 if ending.extra_attempts else 1
            if ending.status is Status.DEAD:
                break
        assert counted == 3


@pytest.mark.parametrize(
    "wanted",
    [math.inf, -math.inf, math.nan, 1e300, 10**400, -(10**400), "soon", True, [], {"seconds": 5}],
    ids=["inf", "-inf", "nan", "1e300", "a huge int", "a huge negative int", "text", "a bool", "a list", "an object"],
)
@pytest.mark.parametrize(("way", "free"), [(Way.RETRY, False), (Way.RETRY, True), (Way.REQUEUED, False)])
def test_no_delay_is_asked_for_that_an_instant_cannot_hold(way: Way, free: bool, wanted: Any) -> None:
    """PostgreSQL refuses `nan * interval '1 second'`, and one such finish would hold up a whole batch."""
    assert 0.0 <= end(way, wanted=wanted, free=free).delay <= DELAY_MOST


def test_a_backoff_without_bound_still_gives_an_instant() -> None:
    policy = RetryPolicy(backoff=1e300, backoff_max=math.inf, jitter=False)
    ending = settle(Way.LOST, attempt=60, max_attempts=99, policy=policy, uniform=random.uniform)
    assert ending.delay == DELAY_MOST
