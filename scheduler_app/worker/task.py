"""`durable_task`: a Celery task whose every call is a run in the database.

Calling conventions, options and canvas are Celery's (docs.celeryq.dev, "Tasks", "Calling Tasks"); what differs:
`autoretry_for` is `(Exception,)` unless given, delays live in the database, `retry()` only raises, and chords and
`self.replace()` are refused.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar, overload
from uuid import UUID

from asgiref.sync import sync_to_async
from celery import shared_task
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from celery.result import AsyncResult
from celery.utils.log import get_task_logger

from scheduler_app.core.budget import TimeBudget
from scheduler_app.core.canvas import CHORD_REFUSED, canvas_of, declare, refuse
from scheduler_app.core.errors import Cancelled, GiveUp, InvalidDefinition, RetryLater
from scheduler_app.core.limits import ATTEMPTS_MOST, DELAY_MOST
from scheduler_app.core.options import TaskOptions
from scheduler_app.core.retry import RetryOverrides, retry_rules
from scheduler_app.core.schedule import validate
from scheduler_app.core.text import describe
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.enqueue import enqueue
from scheduler_app.lifecycle.follow import durable_note
from scheduler_app.lifecycle.rules import RULES
from scheduler_app.lifecycle.together import commit_together
from scheduler_app.worker import connections

logger = get_task_logger(__name__)
NEVER_RETRIED = (Ignore, Reject, Retry, GiveUp, Cancelled, RetryLater)
EXPECTED = (Cancelled, RetryLater)  # said in one line of the log: nothing is wrong
OWN_OPTIONS = ("request_key", "concurrency_key", "ordering_key", "max_attempts")
_UNSET: Any = object()
Returned_co = TypeVar("Returned_co", covariant=True)


connections.watch()


class InvalidArguments(InvalidDefinition, TypeError):
    """Arguments that cannot call the task; a TypeError, as Celery raises."""


class DurableRetry(Retry):
    """A retry on its way to the worker's parent.

    `delay` is seconds, or None for the run's own backoff; `said` describes the cause, which itself may not travel.
    """

    def __init__(self, exc: Any, delay: float | None, extra_attempts: int = 0, said: str = "") -> None:
        super().__init__("", exc, when=delay)
        self.delay = delay
        self.extra_attempts = extra_attempts
        self.said = said or (describe(exc) if isinstance(exc, BaseException) else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__class__, (self.excs, self.delay, self.extra_attempts, self.said)


class DurableTask(DjangoTask):
    """Base class of every durable task."""

    abstract = True
    Strategy = "scheduler_app.worker.strategy:durable"
    Request = "scheduler_app.worker.request:DurableRequest"
    acks_late = True
    ignore_result = False
    rules = retry_rules((Exception,))
    declared_retry_delay: float | None = None
    transactional = False
    throws: tuple[type[BaseException], ...] = EXPECTED

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.request.called_directly or self.request.is_eager:
            return self.run(*args, **kwargs)
        try:
            if self.transactional:
                return commit_together(self.request.everyslot, lambda: self.run(*args, **kwargs))
            return self.run(*args, **kwargs)
        except NEVER_RETRIED:
            raise
        except BaseException as error:
            # "exhausted": self.retry() found no attempt left, by a limit of its own
            if self.request.everyslot.get("exhausted") or not self.rules.finds(error):
                raise
            raise self._another_attempt(error, self._wait(error)) from error

    def _wait(self, error: BaseException) -> float | None:
        """What the rules say; a rule that fails itself must not cost the run its retry."""
        try:
            return self.rules.wait(error, self.request.retries + 1, random.uniform)
        except Exception:
            logger.exception("the wait after %s cannot be told: the run's own backoff is taken", type(error).__name__)
            return None

    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        shadow: str | None = None,
        **options: Any,
    ) -> AsyncResult[Any]:
        """Make a run, in the caller's transaction if one is open; it is published after commit.

        Celery's options that name a delay, a queue, a priority, an expiry, a time limit, links or a chain mean what
        Celery says; `request_key`, `concurrency_key`, `ordering_key` and `max_attempts` are ours.
        Raises InvalidArguments or InvalidDefinition (field, reason).
        """
        if self._get_app().conf.task_always_eager:
            return super().apply_async(args, kwargs, task_id, producer, link, link_error, shadow, **options)
        args, kwargs = _arguments(args, kwargs)
        if self.__v2_compat__:
            args = (self.__self__, *args)
        known = catalog.find(self.name)
        if known and (why := known.misfit(args, kwargs)):
            raise InvalidArguments("payload", f"does not fit {self.name}{known.signature}: {why}")
        run_id = enqueue(
            self.name,
            args,
            kwargs,
            run_id=_uuid(task_id),
            canvas=_canvas(options.get("chord"), chain=options.get("chain"), link=link, link_error=link_error),
            countdown=_number("countdown", options.get("countdown")),
            run_after=_instant("eta", options.get("eta")),
            expires_at=_expiry(options.get("expires")),
            queue=_queue_name(options.get("queue")),
            priority=options.get("priority"),
            time_limit=options.get("time_limit"),
            **{name: options[name] for name in OWN_OPTIONS if name in options},
        )
        return self.AsyncResult(str(run_id))

    async def adelay(self, *args: Any, **kwargs: Any) -> AsyncResult[Any]:
        """`delay` for async callers."""
        result: AsyncResult[Any] = await sync_to_async(self.delay)(*args, **kwargs)
        return result

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Any = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """End this attempt and ask for another one, after `countdown` seconds or the run's backoff. It only raises."""
        request = self.request
        if request.called_directly or request.is_eager:
            return super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        if (args is not None and tuple(args) != tuple(request.args)) or (
            kwargs is not None and kwargs != request.kwargs
        ):
            raise InvalidDefinition("args", "a retry keeps its run's arguments; call .delay() for other ones")
        retry = self._another_attempt(exc, _delay(eta, countdown, self.declared_retry_delay), max_retries)
        if throw:
            raise retry
        return retry

    def _another_attempt(self, exc: Any, delay: float | None, max_retries: int | None = None) -> DurableRetry:
        """The retry to raise. After the last attempt raises `exc` itself, so that the task's `on_failure` and Celery's
        `task_failure` see it; the mark tells the worker's parent that the attempts are used up (trace.py)."""
        request = self.request
        limit = request.everyslot["max_attempts"]
        wanted = limit if max_retries is None else min(max_retries + 1, ATTEMPTS_MOST)
        if request.retries + 1 >= wanted:
            request.everyslot["exhausted"] = True
            raise exc or MaxRetriesExceededError(
                f"Can't retry {self.name}[{request.id}] args:{request.args} kwargs:{request.kwargs}",
                task_args=request.args,
                task_kwargs=request.kwargs,
            )
        return DurableRetry(exc, delay, max(0, wanted - limit))

    def replace(self, sig: Any, visitor: Any = None) -> Any:
        raise InvalidDefinition("replace", "self.replace() is not supported by durable tasks: call a chain instead")


class Durable(Protocol[Returned_co]):
    """What `durable_task` makes of a function: a Celery task (`s`, `si`, `signature` and the rest are Celery's)."""

    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Returned_co: ...
    def delay(self, *args: Any, **kwargs: Any) -> Any: ...
    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any: ...
    async def adelay(self, *args: Any, **kwargs: Any) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...


@overload
def durable_task(function: Callable[..., Returned_co], /) -> Durable[Returned_co]: ...
@overload
def durable_task(**options: Any) -> Callable[[Callable[..., Returned_co]], Durable[Returned_co]]: ...
def durable_task(*args: Any, **options: Any) -> Any:
    """Make a function a durable task: `@durable_task` or `@durable_task(schedule="0 9 * * 1", …)`.

    Ours: `schedule` (with `timezone` and `job_name`) becomes a job on `manage.py jobs sync`; `queue`; `priority`
    (0 to 9, higher first); `time_limit` (seconds an attempt), `run_timeout` and `retry_for` (seconds from the first
    attempt: over all attempts, and until which a retry may begin), `starting_deadline` (whole seconds after its time
    that a run may start); `transactional` (the task's database work and its success commit together);
    `long_running` (its message is acknowledged after the claim, so that no timeout of the broker counts); `retry_on`
    (exception classes, or {class: wait}: None for the run's own backoff, seconds, a `Backoff`, a function of the error;
    unless given every Exception) and `give_up_on` (classes that end the run at once).
    Celery's: `name`, `bind`, `max_retries` (n means n + 1 attempts), `autoretry_for` and `dont_autoretry_for` (other
    names of `retry_on` and `give_up_on`), `retry_backoff` (seconds, or True for 1), `retry_backoff_max`,
    `retry_jitter`, `default_retry_delay`, `soft_time_limit`, and whatever else `shared_task` takes.
    Raises TypeError and ValueError (InvalidDefinition, InvalidSchedule) for a declaration that means nothing.
    """
    if len(args) == 1 and callable(args[0]) and not options:
        return _make(args[0], {})
    if args:
        raise TypeError("durable_task takes keyword arguments only")
    return lambda function: _make(function, options)


def _make(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    given = dict(options)
    name = given.pop("name", None) or f"{function.__module__}.{function.__name__}"
    bind = given.pop("bind", False)
    known = TaskOptions(
        name=name,
        signature=_signature(function, bind),
        schedule=given.pop("schedule", ""),
        timezone=given.pop("timezone", "UTC"),
        job_name=given.pop("job_name", ""),
        queue=given.pop("queue", "default"),
        priority=given.pop("priority", None),
        retry=_retry(given),
        time_limit=given.pop("time_limit", None),
        starting_deadline=_whole_seconds("starting_deadline", given.pop("starting_deadline", None)),
        budget=TimeBudget(given.pop("run_timeout", None), given.pop("retry_for", None)),
        transactional=given.get("transactional", False),
        long_running=given.pop("long_running", False),
        description=(inspect.getdoc(function) or "").partition("\n")[0],
    )
    _judge(known)
    retry_on = _either(given, "retry_on", "autoretry_for", (Exception,))
    give_up_on = _either(given, "give_up_on", "dont_autoretry_for", ())
    task = shared_task(
        name=name,
        bind=bind,
        base=given.pop("base", DurableTask),
        rules=retry_rules(retry_on, give_up_on),
        throws=(*EXPECTED, *given.pop("throws", ())),
        **given,
    )(function)
    catalog.register(known)
    return task


def _judge(declared: TaskOptions) -> None:
    """Refuse what no run could have, in the words of a job's own rules; the queue is judged by who makes a run, since
    a process need not serve it."""
    for field in ("time_limit", "priority"):
        value = getattr(declared, field)
        if value is not None and (why := RULES[field](value)):
            raise InvalidDefinition(field, why)
    if declared.schedule:
        validate(declared.schedule, declared.timezone)


def _whole_seconds(name: str, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= DELAY_MOST):
        return value
    raise ValueError(f"{name} must be a whole number of seconds, 1 to {DELAY_MOST:.0f}, not {value!r}")


def _either(given: dict[str, Any], ours: str, celerys: str, default: Any) -> Any:
    if ours in given and celerys in given:
        raise TypeError(f"{ours} and {celerys} are two names of one option: give one of them")
    return given.pop(ours, given.pop(celerys, default))


def _signature(function: Callable[..., Any], bind: bool) -> inspect.Signature:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1 if bind else 0 :]
    return signature.replace(
        parameters=[p.replace(annotation=inspect.Parameter.empty) for p in parameters],
        return_annotation=inspect.Signature.empty,
    )


def _retry(given: dict[str, Any]) -> RetryOverrides:
    """Celery's retry options as ours; False means Celery's constant delay, True a factor of one second."""
    retries = given.pop("max_retries", _UNSET)
    backoff = given.pop("retry_backoff", None)
    backoff_max = given.pop("retry_backoff_max", None)
    jitter = given.pop("retry_jitter", None)
    constant = given.pop("default_retry_delay", None)
    if constant is not None:
        given["declared_retry_delay"] = float(constant)
    if backoff is False or (backoff is None and constant is not None):
        backoff = backoff_max = 180.0 if constant is None else float(constant)
        jitter = False
    attempts = None if retries is _UNSET else ATTEMPTS_MOST if retries is None else min(retries + 1, ATTEMPTS_MOST)
    return RetryOverrides(
        attempts,
        None if backoff is None else max(1.0, float(backoff)) if backoff is not True else 1.0,
        None if backoff_max is None else float(backoff_max),
        jitter,
    )


def _delay(eta: datetime | None, countdown: float | None, declared: float | None) -> float | None:
    if countdown is not None:
        return max(0.0, float(countdown))
    if eta is not None:
        instant = _instant("eta", eta)
        assert instant is not None
        return max(0.0, (instant - datetime.now(UTC)).total_seconds())
    return declared


def _arguments(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Celery's own two rules (celery/app/amqp.py, `as_task_v2`)."""
    args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
    if not isinstance(args, list | tuple):
        raise InvalidArguments("args", f"must be a list or tuple; got {args!r}")
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise InvalidArguments("payload", f"must be a mapping from argument names to values; got {kwargs!r}")
    return tuple(args), dict(kwargs)


def _canvas(chord: Any, **parts: Any) -> dict[str, Any] | None:
    listed = [_listed(field, value) for field, value in parts.items()]
    why = refuse([signature for part in listed for signature in part]) or (CHORD_REFUSED if chord else None)
    if why:
        raise InvalidDefinition("canvas", why)
    return canvas_of(*(declare(part, durable_note) for part in listed))


def _listed(field: str, value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    signatures = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(each, Mapping) and isinstance(each.get("task"), str) for each in signatures):
        raise InvalidDefinition(field, f"must be a signature or a list of them; got {value!r}")
    return [dict(each) for each in signatures]


def _uuid(task_id: str | None) -> UUID | None:
    if task_id is None:
        return None
    try:
        return UUID(str(task_id))
    except ValueError:
        raise InvalidDefinition("task_id", f"must be a UUID, since it is the run's id; got {task_id!r}") from None


def _number(field: str, value: Any) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise InvalidDefinition(field, f"must be a number of seconds; got {value!r}")


def _instant(field: str, value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(instant, datetime):
            raise ValueError
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidDefinition(field, f"must be an instant; got {value!r}") from None


def _expiry(value: Any) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _instant("expires", value)
    try:
        return datetime.now(UTC) + timedelta(seconds=value)
    except (ValueError, OverflowError):
        raise InvalidDefinition("expires", f"must be a number of seconds or an instant; got {value!r}") from None


def _queue_name(queue: Any) -> str | None:
    return getattr(queue, "name", queue)
