"""Small tasks for the demo and the tests: ok, slow, flaky, poison, cancellable.

They touch nothing but their own run, so a second execution does no harm.
"""

from __future__ import annotations

import time

from scheduler_app import current_run, durable_task


@durable_task(time_limit=60)
def ok(**payload: object) -> dict[str, object]:
    """Return what it was called with."""
    return payload


@durable_task(time_limit=60)
def add(x: float, y: float) -> float:
    """Add two numbers."""
    return x + y


@durable_task(time_limit=300)
def slow(seconds: float = 3.0) -> float:
    """Work for some seconds, showing progress and stopping when asked to."""
    run = current_run()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        run.check()
        run.progress(100 * (1 - left / seconds) if seconds else 100, f"{left:.1f} s to go")
        time.sleep(min(0.2, left))
    return seconds


class NotYet(Exception):
    """What a flaky service answers."""


@durable_task(max_retries=4, retry_backoff=1, time_limit=60)
def flaky(fail_times: int = 2) -> str:
    """Fail at the first attempts, then succeed."""
    attempt = current_run().attempt
    if attempt <= fail_times:
        raise NotYet(f"attempt {attempt} of a service that is not ready")
    return f"succeeded at attempt {attempt}"


@durable_task(max_retries=2, retry_backoff=1, retry_backoff_max=1, time_limit=60)
def poison(reason: str = "this can never work") -> None:
    """Fail at every attempt."""
    raise ValueError(reason)


@durable_task(time_limit=300)
def cancellable(steps: int = 100, seconds: float = 0.1) -> int:
    """Work in steps and stop at the next one when a cancel was asked for."""
    run = current_run()
    for step in range(steps):
        run.check()
        run.progress(100 * step / steps, f"step {step + 1} of {steps}")
        time.sleep(seconds)
    return steps
