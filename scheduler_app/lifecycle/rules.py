"""What the fields of a job may hold: one judge for the admin, code, the command and the API, with the same words.

Guaranteed: all faults come at once, each with its field and reason, and what passes can be stored and planned.
It would break if a definition were written by anything but lifecycle/define.py, which always asks here first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from django.db import models

from scheduler_app.conf import conf
from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.core.limits import ATTEMPTS_MOST, LAST_INSTANT, PRIORITY_MAX
from scheduler_app.core.payload import encode_arguments
from scheduler_app.core.plan import CATCH_UP_MOST
from scheduler_app.core.text import unstorable_string
from scheduler_app.lifecycle import catalog
from scheduler_app.models.job import CatchUp, ConcurrencyPolicy, Fold, Gap

Rule = Callable[[Any], str | None]
MOST: Final = 2_147_483_647  # PostgreSQL's integer


class InvalidJob(InvalidDefinition):
    """A definition that is refused: `faults` has one InvalidDefinition per field and reason, `field` the first."""

    code: ClassVar[str] = "invalid_job"

    def __init__(self, faults: Sequence[InvalidDefinition]) -> None:
        super().__init__(faults[0].field, faults[0].reason)
        self.faults = tuple(faults)

    def __str__(self) -> str:
        return "; ".join(str(fault) for fault in self.faults)


def payload_from_text(text: str) -> Any:
    """The JSON value that a person typed, empty text meaning no arguments; raises InvalidDefinition."""
    try:
        return json.loads(text, parse_constant=_refuse_constant) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition("payload", f"is not JSON: {error}") from None


def field_faults(fields: Mapping[str, Any]) -> list[InvalidDefinition]:
    """What is wrong with each given field by itself."""
    faults: list[InvalidDefinition] = []
    for name, value in fields.items():
        rule = RULES.get(name)
        reason = f"is not a field of a job; known are {', '.join(RULES)}" if rule is None else rule(value)
        if reason:
            faults.append(InvalidDefinition(name, reason))
    return faults


def task_faults(task: str, payload: Any) -> list[InvalidDefinition]:
    """Whether the payload can call the task: a run of a job gives it as keyword arguments, and nothing else."""
    options = catalog.find(task)
    if options is None or not isinstance(payload, dict):
        return []  # said already, by the field's own rule
    why = options.misfit((), payload)
    return [InvalidDefinition("payload", f"does not fit {task}{options.signature}: {why}")] if why else []


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _text(limit: int, required: bool = False) -> Rule:
    def rule(value: Any) -> str | None:
        if not isinstance(value, str):
            return f"must be text, not {_kind(value)}"
        if required and not value.strip():
            return "must not be empty"
        if value != value.strip() or not value.isprintable():
            return "must be one line without control characters or blanks at its ends"
        return f"is longer than {limit} characters" if len(value) > limit else unstorable_string(value)

    return rule


def _whole(low: int, high: int = MOST) -> Rule:
    def rule(value: Any) -> str | None:
        open_ended = high in (MOST, ATTEMPTS_MOST)  # then one bound is enough to tell
        bounds = f"{low} or more" if open_ended else f"from {low} to {high}"
        if isinstance(value, bool) or not isinstance(value, int):
            return f"must be a whole number, {bounds}"
        if low <= value <= high:
            return None
        return f"must be {high} or less" if open_ended and value > high else f"must be {bounds}"

    return rule


def _seconds(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "must be a number of seconds, 0 or more"
    if value > MOST:
        return f"must be {MOST} seconds or less"
    return None if value >= 0 else "must be 0 seconds or more"


def _choice(*allowed: type[models.TextChoices], blank: bool = False) -> Rule:
    values = [str(value) for choices in allowed for value in choices.values]

    def rule(value: Any) -> str | None:
        return None if value in values or (blank and value == "") else f"must be one of {', '.join(values)}"

    return rule


def _optional(rule: Rule) -> Rule:
    return lambda value: None if value is None else rule(value)


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def is_storable(instant: datetime) -> bool:
    """Whether an aware instant can be stored, and read and shown again in every zone: up to `LAST_INSTANT`."""
    try:
        return instant.astimezone(UTC) < LAST_INSTANT
    except OverflowError:
        return False


def _moment(value: Any) -> str | None:
    if not isinstance(value, datetime):
        return f"must be a date and time, not {_kind(value)}"
    if value.tzinfo is None:
        return "must name its offset from UTC"
    return None if is_storable(value) else "lies outside the years 1 to 9998"


def _task(value: Any) -> str | None:
    why = _text(255, required=True)(value)
    if why is None and catalog.find(value) is None:
        known = [options.name for options in catalog.all_tasks()]
        why = f"{value!r} is not a durable task known here" + (f"; known are {', '.join(known)}" if known else "")
    return why


def _payload(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f'must be a JSON object such as {{"month": "2026-11"}}, not {_kind(value)}'
    if not all(isinstance(key, str) for key in value):
        return "must have text keys, the task's argument names"
    try:
        encode_arguments("payload", value)
    except InvalidDefinition as error:
        return error.reason
    return None


def _queue(value: Any) -> str | None:
    known = conf().queues
    return None if value in known else f"{value!r} is not one of {', '.join(known)}"


def _schedule(value: Any) -> str | None:
    return None if isinstance(value, str) else f"must be text, not {_kind(value)}"


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


RULES: Final[Mapping[str, Rule]] = {
    "name": _text(200, required=True),
    "task": _task,
    "payload": _payload,
    "schedule": _schedule,
    "timezone": _schedule,
    "enabled": _flag,
    "queue": _queue,
    "priority": _whole(0, PRIORITY_MAX),
    "concurrency_policy": _choice(ConcurrencyPolicy),
    "starting_deadline": _optional(_whole(1)),
    "catch_up": _choice(CatchUp),
    "catch_up_limit": _whole(1, CATCH_UP_MOST),
    "misfire_grace": _whole(0),
    "jitter": _whole(0),
    "start_at": _optional(_moment),
    "end_at": _optional(_moment),
    "max_runs": _optional(_whole(1)),
    "gap": _choice(Gap, blank=True),
    "fold": _choice(Fold, blank=True),
    "max_attempts": _optional(_whole(1, ATTEMPTS_MOST)),
    "retry_backoff": _optional(_seconds),
    "retry_backoff_max": _optional(_seconds),
    "retry_jitter": _optional(_flag),
    "time_limit": _whole(1),
}
FIELDS: Final = tuple(RULES)
