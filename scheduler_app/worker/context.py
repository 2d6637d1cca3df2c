"""What a task may know of its own run: `current_run()`.

Reading it costs nothing; `progress` and `cancelled` ask the database, each at most twice a second an attempt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from celery import current_task
from django.db import DatabaseError

from scheduler_app.core.errors import Cancelled, LostGround
from scheduler_app.core.text import storable
from scheduler_app.lifecycle.fence import fence
from scheduler_app.lifecycle.progress import report
from scheduler_app.lifecycle.step import recall, run_step
from scheduler_app.worker.fenced import Fenced

ASK_EVERY = 0.5  # seconds between two questions to the database
_given: ContextVar[CurrentRun | None] = ContextVar("everyslot_run", default=None)


@dataclass(slots=True)
class CurrentRun:
    """The run that is being worked on.

    `scheduled_for` is the slot (UTC). `attempt` counts from 1. `idempotency_key` is the same at every attempt: give
    it to other people's APIs. `deadline` is when the time limit kills the attempt.
    """

    id: UUID
    attempt: int
    scheduled_for: datetime
    started_at: datetime
    time_limit: float
    job: str = ""
    worker: UUID | None = None
    _asked_at: float = field(default=float("-inf"), repr=False)
    _wrote_at: float = field(default=float("-inf"), repr=False)
    _cancelled: bool = field(default=False, repr=False)

    @property
    def idempotency_key(self) -> str:
        return str(self.id)

    @property
    def deadline(self) -> datetime:
        return self.started_at + timedelta(seconds=self.time_limit)

    def progress(self, percent: float, message: str = "") -> None:
        """Show how far the work is: `percent` from 0 to 100. Writes at most twice a second; 100 is always written.

        Raises Cancelled if the work should stop, as `check()` does; but not at 100, when there is nothing to stop.
        """
        percent = min(100.0, max(0.0, float(percent)))
        # A time of its own: a `check()` just before must not take the place of the progress.
        if percent >= 100 or time.monotonic() - self._wrote_at >= ASK_EVERY:
            self._wrote_at = time.monotonic()
            self._ask(percent, storable(message, 500))
            if self._cancelled and percent < 100:
                raise self._stop()

    @property
    def cancelled(self) -> bool:
        """Whether someone asked to cancel this run, or the attempt is no longer the current one."""
        if not self._cancelled and time.monotonic() - self._asked_at >= ASK_EVERY:
            self._ask(None, "")
        return self._cancelled

    def check(self) -> None:
        """Raise Cancelled if the work should stop; call it between two pieces of work."""
        if self.cancelled:
            raise self._stop()

    def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`function(*args, **kwargs)`, done once a run: later calls with this name return the remembered result.

        The function's database work commits together with the note that it is done. What it does elsewhere is done
        again only if the process dies before that commit. It runs inside a transaction: keep it short. The result must
        be JSON of at most 256 KB and comes back as such. Raises RetryLater while another attempt is in the block, and
        Cancelled before the block if the work should stop.
        """
        self.check()
        return run_step(self.id, name, lambda: function(*args, **kwargs))

    def remembered(self, name: str, default: Any = None) -> Any:
        """The result of a step of this run that is done, else `default`."""
        return recall(self.id, name, default)

    @contextmanager
    def fence(self) -> Iterator[None]:
        """A transaction (a savepoint where one is open) that takes effect only while this attempt is the current one.

        Raises LostGround at its end, its database work undone, once the run was taken from this attempt: its worker
        was frozen or cut off for longer than its lease. Nothing is locked before that end.
        """
        with fence(self.id, self.attempt, self.worker):
            yield

    def fenced(self, queryset: Any) -> Fenced:
        """Django's writes of a queryset or manager, each in a `fence()`: `run.fenced(Account.objects).update(…)`."""
        return Fenced(queryset, self.fence)

    def _stop(self) -> Cancelled:
        return Cancelled(f"run {self.id} was asked to stop")

    def _ask(self, percent: float | None, message: str) -> None:
        self._asked_at = time.monotonic()
        if self.worker is None:
            return
        try:
            self._cancelled = report(self.id, self.attempt, self.worker, percent, message)
        except DatabaseError:
            # Progress is a courtesy: a database that is away for a moment must not fail the work.
            return


def current_run() -> CurrentRun:
    """The run that this code works on; raises LostGround outside of a durable task's run."""
    given = _given.get()
    if given is not None:
        return given
    request = getattr(current_task, "request", None)
    facts = getattr(request, "everyslot", None) if request is not None else None
    if not facts:
        raise LostGround("there is no current run: this code was not started by a worker (in tests use as_run)")
    run = facts.get("current")
    if run is None:
        run = facts["current"] = from_facts(facts)
    assert isinstance(run, CurrentRun)
    return run


def from_facts(facts: dict[str, Any]) -> CurrentRun:
    """The run from what the worker's parent sent along with the claim."""
    return CurrentRun(
        id=UUID(facts["id"]),
        attempt=facts["attempt"],
        scheduled_for=datetime.fromisoformat(facts["scheduled_for"]),
        started_at=datetime.fromisoformat(facts["started_at"]),
        time_limit=facts["time_limit"],
        job=facts["job"],
        worker=UUID(facts["worker"]) if facts["worker"] else None,
    )


@contextmanager
def as_run(run: CurrentRun) -> Iterator[CurrentRun]:
    """Let code believe that it works on `run`; for tests of tasks."""
    token = _given.set(run)
    try:
        yield run
    finally:
        _given.reset(token)
