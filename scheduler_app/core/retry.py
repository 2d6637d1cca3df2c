"""Which errors are followed by another attempt, when that starts, and how many there may be.

The delay is Celery's (docs.celeryq.dev, "Automatic retry for known exceptions"): with jitter a uniform draw between 0
and `min(backoff_max, backoff * 2 ** (attempt - 1))`, without jitter that bound itself. Randomness is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler_app.core.limits import MAX_ATTEMPTS_DEFAULT, RETRY_BACKOFF_DEFAULT, RETRY_BACKOFF_MAX_DEFAULT

MAX_DOUBLINGS = 60  # beyond it the cap has long been reached; keeps the power finite


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_attempts` counts all attempts; `backoff` and `backoff_max` are seconds."""

    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    backoff: float = RETRY_BACKOFF_DEFAULT
    backoff_max: float = RETRY_BACKOFF_MAX_DEFAULT
    jitter: bool = True


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait after errors of one kind: `first` seconds, doubled at each attempt up to `most`, drawn as the run's own.

    Raises ValueError for what is no number of seconds.
    """

    first: float
    most: float = RETRY_BACKOFF_MAX_DEFAULT
    jitter: bool = True

    def __post_init__(self) -> None:
        for name in ("first", "most"):
            if not is_seconds(getattr(self, name)):
                raise ValueError(f"{name} must be a number of seconds, 0 or more, not {getattr(self, name)!r}")


Wait = None | float | Backoff | Callable[[Any], float | None]
"""The wait after an error: the run's own backoff, seconds, a backoff of its own, or what a function makes of it."""
Kinds = Collection[type[BaseException]]


@dataclass(frozen=True, slots=True)
class RetryRules:
    """Which errors are retried: not those of `give_up_on`; else the most specific class of `retry_on` decides the wait.

    Raises TypeError for what is no exception class or no wait.
    """

    retry_on: Mapping[type[BaseException], Wait]
    give_up_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        for kind in (*self.retry_on, *self.give_up_on):
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError(f"{kind!r} is no exception class")
        for kind, wait in self.retry_on.items():
            if not (wait is None or isinstance(wait, Backoff) or callable(wait) or is_seconds(wait)):
                raise TypeError(f"{kind.__name__} waits None, seconds, a Backoff or a function, not {wait!r}")

    def finds(self, error: BaseException) -> bool:
        """Whether another attempt follows."""
        return isinstance(error, tuple(self.retry_on)) and not isinstance(error, self.give_up_on)

    def wait(self, error: BaseException, attempt: int, uniform: Callable[[float, float], float]) -> float | None:
        """Seconds from attempt number `attempt` to the next, None for the run's backoff; a function's errors pass."""
        line = type(error).__mro__
        kinds = [kind for kind in self.retry_on if isinstance(error, kind)]
        wait = self.retry_on[min(kinds, key=lambda kind: line.index(kind) if kind in line else len(line))]
        if isinstance(wait, Backoff):
            return delay(RetryPolicy(backoff=wait.first, backoff_max=wait.most, jitter=wait.jitter), attempt, uniform)
        return wait(error) if callable(wait) else wait


def retry_rules(retry_on: Kinds | Mapping[type[BaseException], Wait], give_up_on: Kinds = ()) -> RetryRules:
    """The rules of a declaration; classes without a wait get the run's own backoff.

    Raises TypeError as `RetryRules` does, and for a wait that never comes since its class is given up on.
    """
    if not isinstance(retry_on, Mapping):
        return RetryRules(dict.fromkeys(retry_on), tuple(give_up_on))
    rules = RetryRules(dict(retry_on), tuple(give_up_on))
    for kind in rules.retry_on:
        if issubclass(kind, rules.give_up_on):
            raise TypeError(f"{kind.__name__} is given up on, so it has no wait")
    return rules


def is_seconds(value: object) -> bool:
    """Whether it is a finite number, 0 or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


@dataclass(frozen=True, slots=True)
class RetryOverrides:
    """What a job or a task declares; None where it says nothing."""

    max_attempts: int | None = None
    backoff: float | None = None
    backoff_max: float | None = None
    jitter: bool | None = None


def resolve(*declared: RetryOverrides) -> RetryPolicy:
    """The policy in force: the first declaration that says something wins (job, then task), then the defaults."""
    default = RetryPolicy()

    def first(name: str) -> object:
        said = (getattr(each, name) for each in declared)
        return next((value for value in said if value is not None), getattr(default, name))

    return RetryPolicy(*(first(name) for name in ("max_attempts", "backoff", "backoff_max", "jitter")))  # type: ignore[arg-type]


def delay(policy: RetryPolicy, attempt: int, uniform: Callable[[float, float], float]) -> float:
    """Seconds from the end of attempt number `attempt` (1 is the first) to the next one."""
    bound = min(policy.backoff_max, policy.backoff * 2.0 ** min(max(attempt - 1, 0), MAX_DOUBLINGS))
    return uniform(0.0, bound) if policy.jitter else bound
