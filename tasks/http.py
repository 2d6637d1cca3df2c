"""Calling a URL, once a run as far as the other side keeps to the Idempotency-Key header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from requests.exceptions import InvalidHeader, InvalidURL

from scheduler_app import current_run, durable_task
from scheduler_app.core.errors import GiveUp, RetryLater
from tasks.outgoing import Answer, Forbidden, send

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
OURS = {"host", "content-length", "transfer-encoding", "connection", "idempotency-key"}
MAX_HEADERS = 50
MAX_SHOWN = 16 * 1024  # bytes of the answer kept in the run's result
LONGEST_WAIT = 3600.0  # seconds that a Retry-After can ask for
FREE_WAITS_FOR = timedelta(days=1)  # after that, waiting for the other side costs attempts


class TargetFailed(Exception):
    """The other side could not answer now; the run is tried again."""


@durable_task(time_limit=120)
def call_url(
    url: str,
    method: str = "POST",
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Send a request with the run's id as its Idempotency-Key, to public addresses only.

    `body` is sent as text if it is a string, else as JSON. Returns `status`, `content_type`, `body` (the first 16 KB)
    and `whole`. Tried again: no connection, no answer in time, 408, 425, 429 and 5xx; where the answer has Retry-After,
    then (within an hour) and at no cost in attempts for the first day. Given up: other 4xx, redirects, and targets
    that are not public and not in EVERYSLOT_HTTP_ALLOW. A run that has its answer does not send again.
    """
    run = current_run()
    known = run.remembered("answer")
    if known is not None:
        return dict(known)
    content, kind = _content(body)
    sent = _headers(headers or {}, kind) | {"Idempotency-Key": run.idempotency_key}
    try:
        answer = send(_method(method), str(url), sent, content)
    except (Forbidden, InvalidURL, InvalidHeader, UnicodeError) as error:
        raise GiveUp(f"this request is not sent: {error}") from error
    shown = _judge(answer)
    return dict(run.step("answer", lambda: shown))


def _method(method: str) -> str:
    if str(method).upper() not in METHODS:
        raise GiveUp(f"method must be one of {', '.join(METHODS)}, not {str(method)[:20]!r}")
    return str(method).upper()


def _content(body: Any) -> tuple[bytes | None, str]:
    if body is None:
        return None, ""
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return json.dumps(body).encode(), "application/json"


def _headers(given: Mapping[str, str], kind: str) -> dict[str, str]:
    if not isinstance(given, Mapping) or len(given) > MAX_HEADERS:
        raise GiveUp(f"headers must be an object of at most {MAX_HEADERS} names")
    taken = sorted(name for name in given if str(name).lower() in OURS)
    if taken:
        raise GiveUp(f"these headers are set by the task itself: {', '.join(taken)}")
    chosen = {str(name): str(value) for name, value in given.items()}
    if kind and not any(name.lower() == "content-type" for name in chosen):
        chosen["Content-Type"] = kind
    return {"User-Agent": "everyslot", **chosen}


def _judge(answer: Answer) -> dict[str, Any]:
    """What is kept of a good answer; raises what any other answer means for the run."""
    status = answer.status
    if 200 <= status < 300:
        body = answer.body[:MAX_SHOWN].decode("utf-8", "replace").replace("\0", "\ufffd")
        whole = answer.whole and len(answer.body) <= MAX_SHOWN
        kind = answer.headers.get("Content-Type", "")[:200]
        return {"status": status, "content_type": kind, "body": body, "whole": whole}
    if status >= 500 or status in (408, 425, 429):
        wait = _wait(answer.headers.get("Retry-After", ""))
        if wait is not None and datetime.now(UTC) - current_run().scheduled_for < FREE_WAITS_FOR:
            raise RetryLater(wait, f"the target answered {status} and asked to wait")
        raise TargetFailed(f"the target answered {status}")
    if 300 <= status < 400:
        raise GiveUp(f"the target answered {status}; redirects are not followed")
    raise GiveUp(f"the target answered {status}")


def _wait(text: str) -> float | None:
    """Seconds of a Retry-After (RFC 9110 §10.2.3), or None if there is none that can be read."""
    try:
        seconds = float(int(text))
    except ValueError:
        try:
            until = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = ((until if until.tzinfo else until.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    return min(LONGEST_WAIT, max(1.0, seconds))
