"""How an attempt ended, and what that makes of its run: the one place where this is decided. Pure.

Every way out of a task is a `Way`; `settle` maps it, with the attempt's number and the run's limits, to an `Ending`:
the state to write, whether another attempt follows and after how long. Attempt numbers are never used twice, so an
attempt that must not count (given back, stopped, its worker dead) raises `max_attempts` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler_app.core.limits import DELAY_MOST
from scheduler_app.core.retry import RetryPolicy, delay
from scheduler_app.core.states import Status


class Way(StrEnum):
    """The ways out of an attempt; also the `outcome` of its Attempt row."""

    RETURNED = "returned"  # the function returned
    FAILED = "failed"  # it raised what is not retried
    RETRY = "retry"  # it raised what is retried, or called self.retry()
    IGNORED = "ignored"  # Celery's Ignore
    REJECTED = "rejected"  # Celery's Reject(requeue=False)
    REQUEUED = "requeued"  # Celery's Reject(requeue=True): later, at no cost
    GAVE_UP = "gave_up"  # the task's own GiveUp(reason)
    CANCELLED = "cancelled"  # it stopped on request
    LOST = "lost"  # its pool child died
    WORKER_LOST = "worker_lost"  # its worker died: at no cost as long as `free` says so
    STOPPED = "stopped"  # its worker was stopped under it: elsewhere at once, at no cost
    TIMED_OUT = "timed_out"  # over the time limit, killed
    GIVEN_BACK = "given_back"  # claimed but never started


@dataclass(frozen=True, slots=True)
class Ending:
    """What to write. `delay` is seconds until the next attempt; `extra_attempts` is added to `max_attempts`."""

    way: Way
    status: Status
    reason: str = ""
    delay: float = 0.0
    extra_attempts: int = 0
    error: str = ""
    traceback: str = ""
    result: str | None = None

    @property
    def rejects_message(self) -> bool:
        """Whether the message goes to the dead-letter exchange."""
        return self.status is Status.DEAD


FREE_RETRY_SECONDS = 1.0
_AT_ONCE_DEAD = {Way.FAILED: "failed", Way.REJECTED: "rejected", Way.GAVE_UP: "gave_up"}
_EXHAUSTED = {
    Way.RETRY: "attempts_exhausted",
    Way.LOST: "lost",
    Way.WORKER_LOST: "lost",
    Way.TIMED_OUT: "timed_out",
}


def settle(
    way: Way,
    *,
    attempt: int,
    max_attempts: int,
    policy: RetryPolicy,
    uniform: Callable[[float, float], float],
    wanted_delay: float | None = None,
    free: bool = False,
    retry_left: float = math.inf,
    error: str = "",
    traceback: str = "",
    result: str | None = None,
) -> Ending:
    """The ending of attempt number `attempt`.

    `wanted_delay` (seconds) is what the task asked for; without it, and where it is no number that the database could
    add to an instant, the policy's backoff is drawn with `uniform`.
    `free` marks a retry, or the death of a worker, that costs no attempt. `retry_left` (seconds) is the time within
    which a retry must begin; what is no fault of the run (given back, stopped, its worker dead) goes on all the same.
    """
    if way in (Way.RETURNED, Way.IGNORED):
        return Ending(way, Status.SUCCEEDED, "ignored" if way is Way.IGNORED else "", result=result)
    ending = Ending(way, Status.QUEUED, error=error, traceback=traceback)
    if way is Way.CANCELLED:
        return replace(ending, status=Status.CANCELLED, reason="requested")
    if way in _AT_ONCE_DEAD:
        return replace(ending, status=Status.DEAD, reason=_AT_ONCE_DEAD[way])
    if way in (Way.GIVEN_BACK, Way.STOPPED) or (way is Way.WORKER_LOST and free):
        return replace(ending, extra_attempts=1)
    wanted_delay = _seconds(wanted_delay)
    if way is Way.REQUEUED or free:
        # What costs no attempt has no end of its own: at least it must not spin.
        ending = replace(ending, delay=max(FREE_RETRY_SECONDS, wanted_delay or 0.0), extra_attempts=1)
    elif attempt >= max_attempts:
        return replace(ending, status=Status.DEAD, reason=_EXHAUSTED[way])
    else:
        later = min(delay(policy, attempt, uniform), DELAY_MOST) if wanted_delay is None else wanted_delay
        ending = replace(ending, delay=later)
    if ending.delay >= retry_left:
        return replace(ending, status=Status.DEAD, reason="out_of_time", delay=0.0, extra_attempts=0)
    return ending


def _seconds(wanted: object) -> float | None:
    if isinstance(wanted, bool) or not isinstance(wanted, int | float):
        return None
    if isinstance(wanted, float) and not math.isfinite(wanted):
        return None
    return float(min(max(0, wanted), DELAY_MOST))  # bounded first: an int may be too large for a float
