"""For tests of your own tasks: work on a run without a worker, and time that moves only when told.

def test_a_second_execution_charges_nobody_again() -> None:
    run_id = uuid4()
    run_as(charge, 42, run_id=run_id)
    run_as(charge, 42, run_id=run_id, attempt=2)
    assert Charge.objects.count() == 1
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from celery._state import _task_stack

from scheduler_app.clock import HeldClock
from scheduler_app.core.limits import MAX_ATTEMPTS_DEFAULT, TIME_LIMIT_DEFAULT
from scheduler_app.models.ids import new_id

__all__ = ["HeldClock", "run_as", "working_on"]


def run_as(
    task: Any,
    *args: Any,
    run_id: UUID | None = None,
    attempt: int = 1,
    scheduled_for: datetime | None = None,
    **kwargs: Any,
) -> Any:
    """Call a durable task's function as attempt number `attempt` of a run, in this process; returns what it returns.

    Call it twice with one `run_id` to see what a second execution does. `current_run()` and a bound task's `self` know
    the run; `progress` shows nothing and nobody asks to cancel. What the task raises comes out as it is and nothing is
    retried. A transactional task works in the caller's transaction. `scheduled_for` is now unless given.
    """
    with working_on(task, run_id=run_id, attempt=attempt, scheduled_for=scheduled_for):
        return task.run(*args, **kwargs)


@contextmanager
def working_on(
    task: Any, *, run_id: UUID | None = None, attempt: int = 1, scheduled_for: datetime | None = None
) -> Iterator[UUID]:
    """The same for a block of code, which then is part of the task; yields the run's id."""
    run_id = run_id or new_id()
    now = datetime.now(UTC)
    limit = int(getattr(task, "time_limit", None) or TIME_LIMIT_DEFAULT)
    facts = {
        "id": str(run_id),
        "attempt": attempt,
        "max_attempts": max(attempt, MAX_ATTEMPTS_DEFAULT),
        "scheduled_for": (scheduled_for or now).isoformat(),
        "started_at": now.isoformat(),
        "time_limit": limit,
        "job": "",
        "worker": "",  # no row, no lease: nothing is written about the run
    }
    _task_stack.push(task)
    task.push_request(id=str(run_id), retries=attempt - 1, called_directly=True, everyslot=facts)
    try:
        yield run_id
    finally:
        task.pop_request()
        _task_stack.pop()
