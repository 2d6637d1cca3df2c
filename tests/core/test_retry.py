"""How long until the next attempt: Celery's formula, spread over its whole range; and whose settings count."""

from __future__ import annotations

import math
import random
from collections import Counter
from statistics import fmean
from typing import Any

import pytest
from celery.utils.time import get_exponential_backoff_interval

from scheduler_app.core.limits import ATTEMPTS_MOST
from scheduler_app.core.retry import Backoff, RetryOverrides, RetryPolicy, delay, resolve, retry_rules
from scheduler_app.worker.task import _retry, durable_task

DRAWS = 10_000
SERIES = {
    1.0: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600],
    2.0: [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600],
}
"""The bound after attempt 1, 2, 3 … in seconds, for each base, under the cap of 600 s."""

CASES = [(base, attempt, bound) for base, bounds in SERIES.items() for attempt, bound in enumerate(bounds, 1)]


def draws(policy: RetryPolicy, attempt: int, number: int = DRAWS) -> list[float]:
    uniform = random.Random(f"{policy} {attempt}").uniform
    return [delay(policy, attempt, uniform) for _ in range(number)]


@pytest.mark.parametrize(("base", "attempt", "bound"), CASES)
def test_ten_thousand_draws_are_even_between_nothing_and_the_bound(base: float, attempt: int, bound: float) -> None:
    found = draws(RetryPolicy(backoff=base), attempt)
    assert 0 <= min(found) < bound * 0.002
    assert bound * 0.998 < max(found) <= bound
    mean = fmean(found)
    assert mean == pytest.approx(bound / 2, rel=0.02)
    spread = math.sqrt(fmean((each - mean) ** 2 for each in found))
    assert spread == pytest.approx(bound / math.sqrt(12), rel=0.02)
    tenths = Counter(min(9, int(10 * each / bound)) for each in found)
    assert all(abs(tenths[tenth] - DRAWS / 10) < 150 for tenth in range(10)), "five standard deviations"


@pytest.mark.parametrize(("base", "attempt", "bound"), CASES)
def test_without_jitter_the_delay_is_the_bound_itself(base: float, attempt: int, bound: float) -> None:
    def never(low: float, high: float) -> float:
        raise AssertionError("drawn without jitter")

    assert delay(RetryPolicy(backoff=base, jitter=False), attempt, never) == bound
    assert bound == get_exponential_backoff_interval(int(base), attempt - 1, 600), "Celery's own formula"


@pytest.mark.parametrize(("base", "width"), [(1.0, 80), (2.0, 50)])
def test_a_thousand_failures_at_once_come_back_spread_out(base: float, width: int) -> None:
    """No 50 ms holds many more than its even share (50 of 1,000 at base 1, 25 at base 2), and none is empty."""
    bins = Counter(int(each / 0.05) for each in draws(RetryPolicy(backoff=base), 1, 1000))
    assert max(bins.values()) <= width
    assert set(bins) == set(range(int(base / 0.05)))


def test_the_defaults_are_those_of_the_design() -> None:
    assert resolve() == RetryPolicy(max_attempts=5, backoff=1.0, backoff_max=600.0, jitter=True)


@pytest.mark.parametrize("attempt", [0, -5, 61, 10_000, 2**31])
def test_no_attempt_number_makes_the_delay_raise_or_leave_its_bounds(attempt: int) -> None:
    assert 0 <= delay(RetryPolicy(jitter=False), attempt, random.uniform) <= 600


JOB = RetryOverrides(max_attempts=2, backoff=20.0, backoff_max=200.0, jitter=False)
TASK = RetryOverrides(max_attempts=3, backoff=30.0, backoff_max=300.0, jitter=True)
SILENT = RetryOverrides()


@pytest.mark.parametrize(
    ("declared", "policy"),
    [
        pytest.param((JOB, TASK), RetryPolicy(2, 20.0, 200.0, False), id="the job over the task"),
        pytest.param((SILENT, TASK), RetryPolicy(3, 30.0, 300.0, True), id="the task over the defaults"),
        pytest.param((SILENT, SILENT), RetryPolicy(), id="nobody says anything"),
        pytest.param((JOB,), RetryPolicy(2, 20.0, 200.0, False), id="a task that is not known here"),
        pytest.param(
            (RetryOverrides(max_attempts=1), TASK), RetryPolicy(1, 30.0, 300.0, True), id="each setting for itself"
        ),
        pytest.param(
            (RetryOverrides(jitter=False), RetryOverrides(jitter=True)),
            RetryPolicy(jitter=False),
            id="False is something said",
        ),
        pytest.param(
            (RetryOverrides(backoff=0.0), TASK), RetryPolicy(3, 0.0, 300.0, True), id="zero is something said"
        ),
    ],
)
def test_the_first_declaration_that_says_something_wins(
    declared: tuple[RetryOverrides, ...], policy: RetryPolicy
) -> None:
    assert resolve(*declared) == policy


def first_delays(options: dict[str, Any], number: int = 4) -> list[float]:
    """The bounds of the first delays of a task that declares these options, as drawn at the very top."""
    policy = resolve(_retry(dict(options)))
    return [delay(policy, attempt, lambda low, high: high) for attempt in range(1, number + 1)]


@pytest.mark.parametrize(
    ("options", "delays"),
    [
        pytest.param({"retry_backoff": True}, [1, 2, 4, 8], id="True is a factor of one second"),
        pytest.param({"retry_backoff": 2}, [2, 4, 8, 16], id="a number is the factor"),
        pytest.param({"retry_backoff": 5, "retry_backoff_max": 12}, [5, 10, 12, 12], id="the most caps it"),
        pytest.param({"retry_backoff": True, "retry_backoff_max": 3}, [1, 2, 3, 3], id="True with the most"),
        pytest.param({"retry_backoff": 1000}, [600] * 4, id="a factor above the default cap"),
        pytest.param({"retry_backoff": 0.25}, [1, 2, 4, 8], id="a factor below one counts as one"),
        pytest.param({"retry_backoff": False}, [180] * 4, id="False is Celery's constant delay"),
        pytest.param({"retry_backoff": False, "default_retry_delay": 7}, [7] * 4, id="False with a delay declared"),
        pytest.param({"retry_backoff": False, "retry_backoff_max": 5}, [180] * 4, id="the most means nothing then"),
        pytest.param({}, [1, 2, 4, 8], id="nothing said: the defaults"),
    ],
)
def test_celerys_options_mean_what_celery_says(options: dict[str, Any], delays: list[float]) -> None:
    assert first_delays(options) == delays


@pytest.mark.parametrize(
    ("options", "exact"),
    [
        ({"retry_backoff": 3, "retry_jitter": False}, True),
        ({"retry_backoff": 3, "retry_jitter": True}, False),
        ({"retry_backoff": 3}, False),
        ({"retry_backoff": False}, True),
    ],
)
def test_jitter_is_on_unless_switched_off_or_the_delay_is_constant(options: dict[str, Any], exact: bool) -> None:
    assert resolve(_retry(dict(options))).jitter is not exact


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (4, 5), (None, ATTEMPTS_MOST)])
def test_max_retries_counts_what_follows_the_first_attempt(retries: int | None, attempts: int) -> None:
    assert resolve(_retry({"max_retries": retries})).max_attempts == attempts


@pytest.mark.parametrize("factor", [1, 2, 3, 60, 700])
@pytest.mark.parametrize("most", [1, 10, 600])
def test_without_jitter_every_delay_is_the_one_that_celery_computes(factor: int, most: int) -> None:
    options = {"retry_backoff": factor, "retry_backoff_max": most, "retry_jitter": False}
    celerys = [get_exponential_backoff_interval(factor, retries, most) for retries in range(20)]
    assert first_delays(options, 20) == celerys


def bound(_: float, most: float) -> float:
    return most


def hint(error: BaseException) -> float | None:
    return error.args[0] if error.args else None


WAITS = retry_rules(
    {OSError: 7, ConnectionError: Backoff(5, most=15), ConnectionResetError: None, KeyError: hint, LookupError: 0},
    give_up_on=(PermissionError,),
)


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (OSError(), [7, 7, 7]),
        (FileNotFoundError(), [7, 7, 7]),
        (ConnectionError(), [5, 10, 15]),
        (ConnectionRefusedError(), [5, 10, 15]),
        (ConnectionResetError(), [None, None, None]),
        (KeyError(1.5), [1.5, 1.5, 1.5]),
        (KeyError(), [None, None, None]),
        (IndexError(), [0, 0, 0]),
    ],
    ids=repr,
)
def test_the_most_specific_class_that_is_named_decides_the_wait(error: Exception, waits: list[float | None]) -> None:
    assert WAITS.finds(error)
    assert [WAITS.wait(error, attempt, bound) for attempt in (1, 2, 3)] == waits


@pytest.mark.parametrize("error", [PermissionError(), ValueError(), SystemExit(), KeyboardInterrupt()], ids=repr)
def test_what_is_given_up_on_or_not_named_is_not_retried(error: BaseException) -> None:
    assert not WAITS.finds(error)


def test_a_backoff_without_jitter_is_its_bound_and_with_it_a_draw_below() -> None:
    rules = retry_rules({ValueError: Backoff(4, jitter=False), KeyError: Backoff(4)})
    uniform = random.Random("waits").uniform
    assert rules.wait(ValueError(), 3, uniform) == 16
    waits = [rules.wait(KeyError(), 3, uniform) or 0.0 for _ in range(100)]
    assert len(set(waits)) == 100
    assert max(waits) <= 16


def test_classes_alone_have_the_backoff_of_the_run() -> None:
    rules = retry_rules((OSError, KeyError))
    assert [rules.wait(error, 1, bound) for error in (OSError(), KeyError())] == [None, None]


def test_a_class_that_only_claims_to_be_a_base_is_found_last() -> None:
    class Register(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return True

    claims = Register("claims", (Exception,), {})
    assert retry_rules({claims: 1, ValueError: 2}).wait(ValueError(), 1, bound) == 2


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (lambda: retry_rules({"ValueError": 1}), "no exception class"),
        (lambda: retry_rules((int,)), "no exception class"),
        (lambda: retry_rules((), (ValueError(),)), "no exception class"),
        (lambda: retry_rules({ValueError: "soon"}), "waits None, seconds"),
        (lambda: retry_rules({ValueError: -1}), "waits None, seconds"),
        (lambda: retry_rules({ValueError: True}), "waits None, seconds"),
        (lambda: retry_rules({ValueError: math.nan}), "waits None, seconds"),
        (lambda: retry_rules({KeyError: 1}, (LookupError,)), "given up on"),
        (lambda: durable_task(retry_on=(), autoretry_for=())(print), "two names of one option"),
        (lambda: durable_task(give_up_on=(), dont_autoretry_for=())(print), "two names of one option"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(given: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        given()


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan, True, "5", None])
@pytest.mark.parametrize("name", ["first", "most"])
def test_a_backoff_of_no_number_of_seconds_is_refused(name: str, seconds: Any) -> None:
    with pytest.raises(ValueError, match=name):
        Backoff(**{"first": 1, name: seconds})
