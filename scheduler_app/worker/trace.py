"""What runs in the pool child: Celery's tracer, with the result sent back as JSON text instead of as its repr."""

from __future__ import annotations

from typing import Any

from celery import current_app

from scheduler_app.core.payload import encode_result

RETURNED, RAISED, EXHAUSTED = 0, 1, 2  # EXHAUSTED: raised what is retried, with no attempt left


def trace_durable(
    name: str, task_id: str, request: dict[str, Any], body: tuple[Any, Any, Any], *_: object
) -> tuple[int, Any, float | None]:
    """Trace one attempt; (RETURNED, result as JSON text, seconds) or (RAISED or EXHAUSTED, ExceptionInfo, seconds).

    The result is encoded here, where it was made: what has no JSON becomes a note and never fails the attempt.
    """
    args, kwargs, _embed = body
    request.update(args=args, kwargs=kwargs, hostname=request.get("hostname"), is_eager=False)
    outcome, info, seconds, _shown = current_app.tasks[name].__trace__(task_id, args, kwargs, request)
    if not info:
        return RETURNED, encode_result(outcome), seconds
    return EXHAUSTED if request["everyslot"].get("exhausted") else RAISED, outcome, seconds
