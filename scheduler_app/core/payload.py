"""Arguments as JSON text: checked where they are entered, stored as called. Pure but for Kombu's JSON.

Kombu's JSON carries what Celery users pass (datetime, date, time, Decimal, UUID) and reads it back as such.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

from kombu.utils import json as kombu_json

from scheduler_app.core import text
from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.core.limits import NESTING_MOST, PAYLOAD_BYTES, RESULT_BYTES

_NO_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[^\[\]{}"]+')


def encode(value: Any) -> str:
    """JSON text of a value; raises TypeError, ValueError or RecursionError if it has none."""
    return str(kombu_json.dumps(value, allow_nan=False))


def decode(encoded: str) -> Any:
    """The value of stored JSON text."""
    return kombu_json.loads(encoded)


def encode_arguments(field: str, value: Any) -> str:
    """JSON text of arguments; raises InvalidDefinition naming the field where PostgreSQL could not keep them."""
    try:
        encoded = encode(value)
    except Exception as error:  # a value's own `__json__` may raise anything
        raise InvalidDefinition(field, f"cannot be written as JSON: {error}") from error
    if why := _unfit(encoded, PAYLOAD_BYTES):
        raise InvalidDefinition(field, why)
    return encoded


def encode_result(value: Any) -> str:
    """JSON text of a result, or of a note in its place: a result never keeps a run from ending."""
    try:
        encoded = encode(value)
    except Exception as error:  # a value's own `__json__` may raise anything
        why: str | None = f"cannot be written as JSON: {error}"
    else:
        why = _unfit(encoded, RESULT_BYTES)
    return encoded if why is None else json.dumps(text.note(why, value))


def _unfit(encoded: str, limit: int) -> str | None:
    """Why JSON text cannot be stored and read again, or None."""
    if len(encoded) > limit:
        return f"is {len(encoded)} bytes as JSON; the limit is {limit}"
    if encoded.count("[") + encoded.count("{") > NESTING_MOST and _nesting(encoded) > NESTING_MOST:
        return f"is nested deeper than {NESTING_MOST} levels"
    if text.looks_unstorable(encoded) and (why := text.unstorable_string(json.loads(encoded))):
        return f"{why}, which PostgreSQL cannot store"
    return _unreadable(encoded) if '"__type__"' in encoded else None


def _unreadable(encoded: str) -> str | None:
    """Why a value that looks like one of Kombu's marked types would not be read back, or None."""
    try:
        decode(encoded)
    except Exception as error:  # whatever the decoder of that type raises
        return f"holds a __type__ mark and cannot be read back: {error}"
    return None


def _nesting(encoded: str) -> int:
    """How many levels deep JSON text is."""
    brackets = _NO_BRACKETS.sub("", encoded)
    return max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)
