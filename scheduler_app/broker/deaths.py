"""Reading what a broker says of a dead message: RabbitMQ's `x-death` headers, which our transport writes alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from scheduler_app.core.letter import Letter
from scheduler_app.core.message import ATTEMPT_HEADER, read_attempt
from scheduler_app.core.text import storable

SECRET_WORDS = ("password", "passwd", "secret", "token", "api_key", "apikey", "authorization", "credential")
BODY_BYTES = 16 * 1024


def read_death(headers: Any, body: Any, routing_key: str = "") -> Letter:
    """The letter of a dead-lettered message, whatever is in it; never raises."""
    known: Mapping[str, Any] = headers if isinstance(headers, Mapping) else {}
    raw = body if isinstance(body, bytes) else str(body).encode("utf-8", "replace")
    shown = json.dumps(_plain(known), sort_keys=True)
    run_id, attempt = _uuid(known.get("id")), read_attempt(known.get(ATTEMPT_HEADER))
    death = _first_death(known)
    task = known.get("task")
    digest = "" if run_id is not None and attempt is not None else hashlib.sha256(shown.encode() + raw).hexdigest()
    return Letter(
        run_id=run_id,
        # The header says how many attempts there were; the dead one is the next.
        attempt=None if attempt is None else attempt + 1,
        task=storable(task, 255) if isinstance(task, str) else "",
        queue=storable(str(known.get("x-first-death-queue") or death.get("queue") or routing_key), 100),
        reason=storable(str(known.get("x-first-death-reason") or death.get("reason") or "unknown"), 100),
        headers=shown,
        body=storable(raw.decode("utf-8", "replace"), BODY_BYTES),
        digest=digest,
    )


def _first_death(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    deaths = headers.get("x-death")
    last = deaths[-1] if isinstance(deaths, list) and deaths else None
    return last if isinstance(last, Mapping) else {}


def _uuid(value: Any) -> UUID | None:
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        return None


def _plain(value: Any, name: str = "", depth: int = 0) -> Any:
    """JSON that PostgreSQL can keep, with secrets redacted by the name they stand under."""
    if any(word in name.lower() for word in SECRET_WORDS):
        return "[redacted]"
    if depth > 8:
        return "…"
    if isinstance(value, Mapping):
        return {storable(str(k), 200): _plain(v, str(k), depth + 1) for k, v in list(value.items())[:200]}
    if isinstance(value, list | tuple):
        return [_plain(each, name, depth + 1) for each in value[:200]]
    if value is None or (isinstance(value, bool | int) and abs(int(value)) < 2**63):
        return value
    return storable(str(value), 2000)
