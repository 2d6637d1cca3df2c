"""What runs in the pool child: Celery's tracer, with the result sent back as JSON text instead of as its repr."""

from __future__ import annotations

from typing import Any

from celery import current_app

from scheduler_app.core.payload import encode_result


def trace_durable(
    name: str, task_id: str, request: dict[str, Any], body: tuple[Any, Any, Any], *_: object
) -> tuple[int, Any, float | None]:
    """Trace one attempt; (0, result as JSON text, seconds) or (1, ExceptionInfo, seconds).

    The result is encoded here, where it was made: what has no JSON becomes a note and never fails the attempt.
    """
    args, kwargs, _embed = body
    request.update(args=args, kwargs=kwargs, hostname=request.get("hostname"), is_eager=False)
    outcome, info, seconds, _shown = current_app.tasks[name].__trace__(task_id, args, kwargs, request)
    return (1, outcome, seconds) if info else (0, encode_result(outcome), seconds)
