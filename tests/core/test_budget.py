"""How long a run may take over all its attempts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from scheduler_app.core.budget import TimeBudget
from scheduler_app.core.outcome import Way, settle
from scheduler_app.core.retry import RetryPolicy
from scheduler_app.core.states import Status


@pytest.mark.parametrize(
    ("budget", "elapsed", "attempt", "retry"),
    [
        (TimeBudget(), 1e9, math.inf, math.inf),
        (TimeBudget(run_timeout=60), 0, 60, 60),
        (TimeBudget(run_timeout=60), 70, -10, -10),
        (TimeBudget(retry_for=60), 70, math.inf, -10),
        (TimeBudget(run_timeout=60, retry_for=30), 10, 50, 20),
        (TimeBudget(run_timeout=30, retry_for=60), 10, 20, 20),
    ],
)
def test_what_is_left(budget: TimeBudget, elapsed: float, attempt: float, retry: float) -> None:
    assert (budget.attempt_left(elapsed), budget.retry_left(elapsed)) == (attempt, retry)


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, True, "60", 1e12])
@pytest.mark.parametrize("name", ["run_timeout", "retry_for"])
def test_what_is_no_time_is_refused_by_name(name: str, seconds: Any) -> None:
    with pytest.raises(ValueError, match=name):
        TimeBudget(**{name: seconds})


def ending(way: Way, retry_left: float, **given: Any) -> tuple[Status, str, int]:
    policy = RetryPolicy(backoff=10, jitter=False)
    end = settle(way, attempt=1, max_attempts=5, policy=policy, uniform=max, retry_left=retry_left, **given)
    return end.status, end.reason, end.extra_attempts


DEAD = (Status.DEAD, "out_of_time", 0)


@pytest.mark.parametrize("way", [Way.RETRY, Way.LOST, Way.TIMED_OUT, Way.WORKER_LOST])
def test_a_retry_that_would_begin_too_late_does_not_follow(way: Way) -> None:
    assert ending(way, 10.1) == (Status.QUEUED, "", 0)
    assert ending(way, 10) == DEAD
    assert ending(way, -5) == DEAD
    assert ending(way, 10.1, wanted_delay=11) == DEAD


@pytest.mark.parametrize(("way", "free"), [(Way.RETRY, True), (Way.REQUEUED, False)])
def test_what_costs_no_attempt_ends_then_too(way: Way, free: bool) -> None:
    assert ending(way, 1.1, free=free) == (Status.QUEUED, "", 1)
    assert ending(way, 1, free=free) == DEAD


@pytest.mark.parametrize(("way", "free"), [(Way.STOPPED, False), (Way.GIVEN_BACK, False), (Way.WORKER_LOST, True)])
def test_what_is_no_fault_of_the_run_goes_on(way: Way, free: bool) -> None:
    assert ending(way, -1, free=free) == (Status.QUEUED, "", 1)


def test_an_end_stays_an_end() -> None:
    assert ending(Way.RETURNED, -1) == (Status.SUCCEEDED, "", 0)
    assert ending(Way.CANCELLED, -1) == (Status.CANCELLED, "requested", 0)
    assert ending(Way.FAILED, -1) == (Status.DEAD, "failed", 0)
