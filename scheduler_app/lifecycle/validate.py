"""Whether a definition can be saved: the rules of each field, and those across fields, all faults at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from scheduler_app.core.errors import InvalidDefinition, InvalidSchedule
from scheduler_app.core.payload import encode_arguments
from scheduler_app.core.schedule.zones import find_zone
from scheduler_app.lifecycle.rules import FIELDS, field_faults, task_faults
from scheduler_app.lifecycle.timing import first_slot, schedule_of
from scheduler_app.models import Job
from scheduler_app.store.define import database_now

TIMING: Final = frozenset({"schedule", "timezone", "enabled", "start_at", "end_at", "max_runs", "gap", "fold"})
TAKEN: Final = "is taken by another job"
_REQUIRED: Final = {"name": "", "task": ""}


def validate(fields: Mapping[str, Any], job: Job | None = None) -> list[InvalidDefinition]:
    """Everything that is wrong with a new job's fields, or with changes to `job`; empty if they can be saved.

    Fields that `job` has already are not judged again: one that became bad must not keep a person from mending another.
    """
    given = changed(job, fields) if job else _REQUIRED | dict(fields)
    faults = field_faults(given)
    bad = {fault.field for fault in faults}
    now = database_now()
    trial = with_changes(job, {name: value for name, value in given.items() if name not in bad}, now)
    if not bad & {"task", "payload"} and {"task", "payload"} & given.keys():
        faults += task_faults(trial.task, trial.payload)
    if "name" in given and "name" not in bad and _is_taken(trial):
        faults.append(InvalidDefinition("name", TAKEN))
    if job is None or moves_slots(trial, given):
        faults += _timing_faults(trial, now, bad)
    return faults


def faults_of(job: Job) -> list[InvalidDefinition]:
    """What is wrong with a definition as it stands: the reasons why its slots could not be recorded."""
    whole = {name: getattr(job, name) for name in FIELDS}
    return field_faults(whole) + task_faults(job.task, job.payload) + schedule_faults(job)


def changed(job: Job, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the fields that differ from the job's."""
    return {name: value for name, value in fields.items() if not hasattr(job, name) or getattr(job, name) != value}


def moves_slots(job: Job, changes: Mapping[str, Any]) -> bool:
    """Whether changes of these fields touch when the slots come. The name does where `H` is drawn from it."""
    return bool(TIMING & changes.keys()) or ("name" in changes and "h" in job.schedule.lower())


def with_changes(job: Job | None, changes: Mapping[str, Any], now: datetime) -> Job:
    """A copy of the job (a new one from None) with the changes, which must be sound by themselves.

    The anchor of intervals is `start_at`, else the second of creation. The arguments become what JSON keeps of them.
    """
    values: dict[str, Any] = {"anchor": now.replace(microsecond=0)}
    if job is not None:
        values = {field.attname: getattr(job, field.attname) for field in Job._meta.concrete_fields}
    values |= changes
    if changes.get("start_at"):
        values["anchor"] = changes["start_at"]
    if "payload" in changes:
        values["payload"] = json.loads(encode_arguments("payload", changes["payload"]))
    copy = Job(**values)
    if job is not None:
        copy._state.adding, copy._state.db = False, job._state.db
    return copy


def _is_taken(job: Job) -> bool:
    return Job.objects.filter(name=job.name).exclude(pk=job.pk).exists()


def _timing_faults(job: Job, now: datetime, bad: set[str]) -> list[InvalidDefinition]:
    """Whether the schedule is sound and has a slot left; fields that are bad by themselves are left out."""
    faults = [fault for fault in schedule_faults(job) if fault.field not in bad]
    if job.start_at and job.end_at and job.start_at > job.end_at:
        faults.append(InvalidDefinition("end_at", "must not be before start_at"))
    if faults or bad & TIMING or not job.enabled or not job.schedule.strip():
        return faults
    if job.max_runs is not None and job.recorded_runs >= job.max_runs:
        return [InvalidDefinition("max_runs", f"is used up: {job.recorded_runs} runs were recorded")]
    if job.end_at is not None and job.end_at <= now:
        return [InvalidDefinition("end_at", "lies in the past, no slot is left")]
    if first_slot(job, now) is None:
        bounded = job.start_at is not None or job.end_at is not None
        reason = "has no slot within start_at and end_at" if bounded else "lies in the past, it would never run"
        return [InvalidDefinition("schedule", reason)]
    return []


def schedule_faults(job: Job) -> list[InvalidDefinition]:
    """Whether zone and text are sound; a bad zone does not hide a bad text."""
    faults: list[InvalidDefinition] = []
    try:
        find_zone(job.timezone)
    except InvalidSchedule as error:
        faults.append(InvalidDefinition("timezone", error.reason))
    try:
        schedule_of(job, "UTC" if faults else job.timezone)
    except InvalidSchedule as error:
        faults.append(_as_job_field(error))
    return faults


def _as_job_field(error: InvalidSchedule) -> InvalidDefinition:
    """The engine names the part of the text ("hour"); a person mends a field of the job."""
    if error.field in ("gap", "fold", "schedule"):
        return InvalidDefinition(error.field, error.reason)
    return InvalidDefinition("schedule", f"{error.field} {error.reason}")
