"""Tasks that end in every way there is, for tests of results, retries and canvas with real workers."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

from celery.exceptions import Ignore, MaxRetriesExceededError, Reject

from scheduler_app import current_run, durable_task
from scheduler_app.core.errors import Cancelled, GiveUp, RetryLater
from tests.support.workload import note

MODULES = {"EVERYSLOT_TASK_MODULES": "tasks,tests.support.workload,tests.support.endings"}  # for a worker
QUICK = {"time_limit": 60, "retry_backoff": 1, "retry_backoff_max": 0.01}


class NeedsTwo(Exception):
    """Cannot be made from its message alone."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"code {code} at {where}")
        self.code, self.where = code, where


class Unpicklable(Exception):
    """Holds what no pickle carries."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.function = lambda: None


class Unspeakable(Exception):
    """Has no message that could be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class OwnJson:
    """Its own JSON fails in its own way."""

    def __json__(self) -> Any:
        raise LookupError("no JSON today")


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


RESULTS = {
    "nothing": lambda: None,
    "a NUL character": lambda: {"text": "a\x00b"},
    "a lone surrogate": lambda: "\ud800",
    "a surrogate as a key": lambda: {"\udfff": 1},
    "an object": object,
    "not a number": lambda: [float("nan")],
    "infinity": lambda: float("inf"),
    "a set": lambda: {1, 2},
    "keys that are no text": lambda: {(1, 2): 3},
    "huge text": lambda: "x" * 300_000,
    "many small ones": lambda: [{"n": n} for n in range(40_000)],
    "its own JSON": OwnJson,
    "deep nesting": lambda: _deep(900),
    "deeper than Python recurses": lambda: _deep(100_000),
    "bytes": lambda: b"\xff\x00",
    "a large whole number": lambda: 10**4000,
}
ERRORS = {
    "a NUL character": lambda: ValueError("a\x00b"),
    "huge text": lambda: ValueError("x" * 1_000_000),
    "constructor arguments": lambda: NeedsTwo(7, "home"),
    "unpicklable": lambda: Unpicklable("holds a function"),
    "no message": ValueError,
    "no words": Unspeakable,
    "a group": lambda: ExceptionGroup("two at once", [ValueError("one"), KeyError("two")]),
    "recursion": lambda: _recurse(0),
    "memory": lambda: MemoryError("none left"),
    "stop iteration": lambda: StopIteration("enough"),
    "a lone surrogate": lambda: ValueError("\ud800"),
}


def _recurse(n: int) -> Any:
    return _recurse(n + 1)


@durable_task(time_limit=60, max_retries=0)
def returning(what: str) -> Any:
    """Return one of RESULTS."""
    return RESULTS[what]()


@durable_task(time_limit=60)
def returning_what_has_no_repr() -> int:
    """A number that Python refuses to print, as Celery does for its log."""
    return 10**5000


@durable_task(time_limit=60)
def returning_beyond_the_recursion_limit(levels: int) -> Any:
    """What only a program with a higher limit can write."""
    sys.setrecursionlimit(50_000)
    return _deep(levels)


@durable_task(autoretry_for=(), max_retries=1, **QUICK)
def raising(what: str) -> None:
    """Raise one of ERRORS; it is not tried again."""
    raise ERRORS[what]()


@durable_task(max_retries=1, **QUICK)
def raising_again(what: str) -> None:
    """Raise one of ERRORS, twice."""
    raise ERRORS[what]()


@durable_task(max_retries=1, **QUICK)
def leaving(how: str) -> None:
    """End the pool child by an exception that is no Exception."""
    raise {"SystemExit": SystemExit(3), "KeyboardInterrupt": KeyboardInterrupt(), "GeneratorExit": GeneratorExit()}[how]


@durable_task(max_retries=0, time_limit=1)
def overrunning(path: str) -> None:
    """Work for longer than the limit."""
    note(path, "start")
    while True:
        pass


@durable_task(bind=True, name="tests.a name of its own", max_retries=2, autoretry_for=())
def asking_again(self: Any, path: str, succeed_at: int = 99, **given: Any) -> int:
    """Ask for a retry at once until the attempt is `succeed_at`."""
    note(path, f"{self.request.retries}")
    if self.request.retries + 1 < succeed_at:
        raise self.retry(countdown=0, **given)
    return int(self.request.retries)


@durable_task(bind=True, max_retries=2, time_limit=60, retry_backoff=1, retry_backoff_max=0.01)
def asking_again_with_the_cause(self: Any, path: str, max_retries: int | None = None) -> None:
    """Celery's commonest form: the caught error is given to `retry`."""
    try:
        note(path, f"{self.request.retries}")
        raise LookupError("not there yet")
    except LookupError as error:
        raise self.retry(exc=error, countdown=0, max_retries=max_retries) from error


@durable_task(bind=True, max_retries=1, **QUICK)
def giving_up_when_exhausted(self: Any) -> None:
    """Says more than that the attempts are used up."""
    try:
        self.retry(countdown=0)
    except MaxRetriesExceededError:
        raise GiveUp("the other side is gone for good") from None


@durable_task(autoretry_for=(LookupError,), dont_autoretry_for=(KeyError,), max_retries=2, **QUICK)
def choosy(path: str, kind: str) -> None:
    """Only LookupError is tried again, KeyError (which is one) not."""
    note(path, kind)
    raise {"LookupError": LookupError, "IndexError": IndexError, "KeyError": KeyError, "ValueError": ValueError}[kind](
        "as asked"
    )


@durable_task(run_timeout=1.5, time_limit=60, retry_backoff=1, retry_backoff_max=0.01)
def overrunning_at_last(path: str) -> None:
    """Fail once, then work for longer than the run may."""
    note(path, f"{current_run().attempt}")
    if current_run().attempt == 1:
        raise ValueError("once")
    while True:
        pass


@durable_task(retry_for=2.5, retry_on={Exception: 1}, time_limit=60)
def retried_for_a_while(path: str) -> None:
    """Always fail."""
    note(path, f"{current_run().attempt}")
    raise ValueError("always")


@durable_task(retry_for=2.5, time_limit=60)
def asking_for_free_for_a_while(path: str) -> None:
    """Never be ready."""
    note(path, f"{current_run().attempt}")
    raise RetryLater(1, "not yet")


def _broken(error: BaseException) -> float:
    """A wait that cannot be told."""
    return float(str(error))


@durable_task(retry_on={KeyError: _broken, LookupError: 0.2}, give_up_on=(OSError,), max_retries=1, **QUICK)
def waiting_by_kind(path: str, kind: str) -> None:
    """Each kind of error has its own wait."""
    note(path, f"{current_run().attempt}")
    raise {"IndexError": IndexError, "KeyError": KeyError, "PermissionError": PermissionError}[kind]("as asked")


@durable_task(max_retries=1, retry_backoff=False, default_retry_delay=0.2, time_limit=60)
def constant_delay(path: str) -> None:
    """Celery's constant delay."""
    note(path, f"{current_run().attempt}")
    raise ValueError("always")


@durable_task(bind=True, max_retries=1, default_retry_delay=0.2, time_limit=60)
def constant_delay_with_the_cause(self: Any, path: str) -> None:
    """Celery's constant delay, in the form of its manual."""
    note(path, f"{current_run().attempt}")
    try:
        raise ValueError("always")
    except ValueError as error:
        raise self.retry(exc=error) from error


@durable_task(bind=True, max_retries=2, autoretry_for=())
def inner(self: Any, path: str) -> str:
    """Called as a function by `outer`."""
    note(path, "inner")
    raise self.retry(exc=LookupError("inside"), countdown=0)


@durable_task(max_retries=1, **QUICK)
def outer(path: str) -> str:
    """A retry inside a task that is called as a function is the caller's error."""
    note(path, "outer")
    return inner(path)


@durable_task(time_limit=60, max_retries=0)
def later(path: str, seconds: Any = 0, times: int = 3) -> int:
    """RetryLater so many times."""
    note(path, "later")
    attempt = current_run().attempt
    if attempt <= times:
        raise RetryLater(seconds, "not ready")
    return attempt


@durable_task(bind=True, max_retries=3, time_limit=60)
def retrying_at(self: Any, instant: str) -> None:
    """A retry at an instant (ISO 8601)."""
    raise self.retry(eta=datetime.fromisoformat(instant))


@durable_task(bind=True, max_retries=0, time_limit=60)
def asking_for_much(self: Any, **given: Any) -> None:
    """A retry that no database could write as asked."""
    raise self.retry(**given)


@durable_task(time_limit=60)
def ending(how: str) -> None:
    """Raise what ends a run by itself."""
    raise {
        "GiveUp": GiveUp("this will never work"),
        "Cancelled": Cancelled("enough"),
        "Ignore": Ignore("never mind"),
        "Reject": Reject("not for me", requeue=False),
    }[how]


@durable_task(time_limit=60, max_retries=0)
def requeuing(path: str) -> int:
    """Reject once with requeue: later, at no cost."""
    note(path, "requeue")
    if current_run().attempt == 1:
        raise Reject("later", requeue=True)
    return current_run().attempt


@durable_task(time_limit=60)
def add(x: int, y: int, path: str) -> int:
    """Note the sum and the attempt; the sum of the part before comes first."""
    note(path, f"{x + y} {current_run().attempt}")
    return x + y


@durable_task(time_limit=60)
def told(run_id: str, path: str) -> None:
    """An error link: note the dead run."""
    note(path, f"dead {run_id}")


@durable_task(time_limit=60, autoretry_for=())
def breaking(x: int, path: str) -> None:
    """A part of a chain that dies."""
    note(path, f"broken {x}")
    raise ValueError("this part breaks")
