"""Arguments as JSON text: checked where they are entered, stored as called. Pure but for Kombu's JSON.

Kombu's JSON carries what Celery users pass (datetime, date, time, Decimal, UUID) and reads it back as such.
"""

from __future__ import annotations

import json
from typing import Any

from kombu.utils import json as kombu_json

from scheduler_app.core import text
from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.core.limits import PAYLOAD_BYTES, RESULT_BYTES


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
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidDefinition(field, f"cannot be written as JSON: {error}") from error
    if len(encoded) > PAYLOAD_BYTES:
        raise InvalidDefinition(field, f"is {len(encoded)} bytes as JSON; the limit is {PAYLOAD_BYTES}")
    if text.looks_unstorable(encoded) and (why := text.unstorable_string(json.loads(encoded))):
        raise InvalidDefinition(field, f"{why}, which PostgreSQL cannot store")
    return encoded


def encode_result(value: Any) -> str:
    """JSON text of a result, or of a note in its place: a result never keeps a run from ending."""
    try:
        encoded = encode(value)
        if len(encoded) > RESULT_BYTES:
            why: str | None = f"is {len(encoded)} bytes as JSON; the limit is {RESULT_BYTES}"
        else:
            why = text.unstorable_string(json.loads(encoded)) if text.looks_unstorable(encoded) else None
    except (TypeError, ValueError, RecursionError) as error:
        why = f"cannot be written as JSON: {error}"
    return encoded if why is None else json.dumps(text.note(why, value))
