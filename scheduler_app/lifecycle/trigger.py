"""Trigger: start a run of a job now, by hand.

Guaranteed: the job's concurrency policy holds for hand-started runs as for slots: under `forbid` the start is refused
while an earlier run is queued or running, under `replace` and the queueing policies it waits. It would break if the
job's row were not locked here, as the recorder locks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction

from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.core.overlap import ActiveRun, Arrangement, arrange
from scheduler_app.instrument import emit
from scheduler_app.lifecycle.define import JobMissing
from scheduler_app.lifecycle.enqueue import enqueue
from scheduler_app.lifecycle.rules import InvalidJob, field_faults
from scheduler_app.models import Job
from scheduler_app.models.ids import new_id
from scheduler_app.models.job import ConcurrencyPolicy
from scheduler_app.store.decide import cancel_runs, hold_run, lock_active_of_job
from scheduler_app.store.define import database_now


def run_now(job: Job, by: str, payload: Mapping[str, Any] | None = None, *, trigger: str = "manual") -> UUID:
    """Start a run of the job with its own arguments or other ones; the run's id.

    Its `scheduled_for` is its own instant, so it never takes a slot's place. A paused, disabled or quarantined job
    can be started. Raises JobMissing; InvalidDefinition (or InvalidJob) for bad arguments, an unknown task, or an
    earlier run that `forbid` does not allow beside it.
    """
    if payload is not None and (faults := field_faults({"payload": payload})):
        raise InvalidJob(faults)
    if job.concurrency_policy == ConcurrencyPolicy.ALLOW:
        current = Job.objects.live().filter(pk=job.pk).first()
        if current is not None and current.concurrency_policy == ConcurrencyPolicy.ALLOW:
            return _start(current, by, payload, trigger)
    with transaction.atomic():
        locked = Job.objects.live().select_for_update().filter(pk=job.pk).first()
        if locked is None:
            raise JobMissing(f"there is no job {job.name!r}")
        arranged = _arrange(locked, lock_active_of_job(locked.pk))
        cancel_runs([*arranged.cancel, *arranged.stop], "replaced")
        return _start(locked, by, payload, trigger, arranged.placed[0].held_by)


def _arrange(job: Job, active: list[ActiveRun]) -> Arrangement:
    """What the policy makes of one more run; raises InvalidDefinition if it leaves no room."""
    arranged = arrange(job.concurrency_policy, [0], active, new_id)
    if not arranged.placed:
        last = active[-1]
        state = "running" if last.running else "queued"
        raise InvalidDefinition(
            "concurrency_policy", f"{job.concurrency_policy} leaves no room: the run {last.id} of this job is {state}"
        )
    return arranged


def _start(job: Job, by: str, payload: Mapping[str, Any] | None, trigger: str, holder: UUID | None = None) -> UUID:
    """Insert and publish the run, or let it wait for its holder."""
    kwargs = job.payload if payload is None else payload
    after = None if holder is None else database_now()  # with it the row is not dispatched yet, and can be held
    run_id = enqueue(job.task, (), kwargs, job=job, trigger=trigger, triggered_by=by[:200], run_after=after)
    if holder is not None:
        hold_run(run_id, holder)
    emit("job.triggered", job=job.pk, run=run_id, by=by)
    return run_id
