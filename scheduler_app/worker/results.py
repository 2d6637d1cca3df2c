"""`AsyncResult` of a durable task, answered from its run row; other tasks keep django-celery-results' own table.

For durable tasks every store method does nothing: the ledger alone writes, under the attempt's fence.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from celery import states
from django_celery_results.backends.database import DatabaseBackend

from scheduler_app.core.outcome import Way
from scheduler_app.core.payload import decode
from scheduler_app.core.states import Status
from scheduler_app.models import Attempt, JobRun

_STATES = {
    Status.RUNNING: states.STARTED,
    Status.SUCCEEDED: states.SUCCESS,
    Status.DEAD: states.FAILURE,
    Status.CANCELLED: states.REVOKED,
    Status.SKIPPED: states.REVOKED,
}

_ENDS_OF_A_PROCESS: dict[str, str] = {
    Way.LOST: "WorkerLostError",
    Way.WORKER_LOST: "WorkerLostError",
    Way.STOPPED: "WorkerLostError",
    Way.TIMED_OUT: "TimeLimitExceeded",
}


class RunBackend(DatabaseBackend):
    """django-celery-results' database backend with runs answered first."""

    def _get_task_meta_for(self, task_id: str) -> dict[str, Any]:
        run = _find(task_id)
        if run is None:
            found: dict[str, Any] = super()._get_task_meta_for(task_id)
            return found
        return self._meta(run)

    def _meta(self, run: JobRun) -> dict[str, Any]:
        state = _STATES.get(Status(run.status)) or (states.RETRY if run.attempts else states.PENDING)
        meta: dict[str, Any] = {
            "status": state,
            "task_id": str(run.id),
            "result": None,
            "traceback": None,
            "name": run.task,
            "args": run.args,
            "kwargs": run.payload,
            "retries": max(0, run.attempts - 1),
            "date_done": run.finished_at.isoformat() if run.finished_at else None,
            "children": [],
        }
        if state == states.SUCCESS:
            meta["result"] = run.result
        elif state in (states.FAILURE, states.RETRY):
            last = Attempt.objects.filter(run_id=run.id, number=run.attempts).first()
            error = self.exception_to_python(_exception(run.last_error, last.outcome if last else ""))
            # `get()` raises it: what is no Exception (GeneratorExit, CancelledError) would end the process that asks.
            meta["result"] = error if isinstance(error, Exception) else Exception(run.last_error)
            meta["traceback"] = (last.traceback if last else "") or run.last_error
        elif state == states.REVOKED:
            what = {"exc_type": "TaskRevokedError", "exc_message": [run.reason], "exc_module": "celery.exceptions"}
            meta["result"] = self.exception_to_python(what)
        return meta

    def store_result(self, task_id: Any, result: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_durable(kwargs.get("request")) or _find(str(task_id)) is not None:
            return result
        return super().store_result(task_id, result, state, *args, **kwargs)

    def _forget(self, task_id: str) -> None:
        if _find(task_id) is None:
            super()._forget(task_id)


def _find(task_id: str) -> JobRun | None:
    try:
        run_id = UUID(str(task_id))
    except ValueError:
        return None
    run = JobRun.objects.filter(pk=run_id).extra(select={"_result": "result::text"}).first()
    if run is not None:
        text = run._result
        run.result = decode(text) if text is not None else None
    return run


def _is_durable(request: Any) -> bool:
    return bool(getattr(request, "everyslot", None))


def _exception(error: str, way: str) -> dict[str, Any]:
    """The parts of `package.module.Class: message`, as the worker writes an error; Celery's own for a process's end."""
    if way in _ENDS_OF_A_PROCESS:
        return {"exc_type": _ENDS_OF_A_PROCESS[way], "exc_message": [error], "exc_module": "celery.exceptions"}
    name, _, message = error.partition(": ")
    module, _, kind = name.rpartition(".")
    if not kind.isidentifier():
        return {"exc_type": "Exception", "exc_message": [error], "exc_module": "builtins"}
    return {"exc_type": kind, "exc_message": [message], "exc_module": module or "builtins"}
