"""When the next attempt starts, and how many there may be.

The delay is Celery's (docs.celeryq.dev, "Automatic retry for known exceptions"): with jitter a uniform draw between 0
and `min(backoff_max, backoff * 2 ** (attempt - 1))`, without jitter that bound itself. Randomness is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
