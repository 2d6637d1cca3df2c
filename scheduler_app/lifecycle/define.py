"""Define: create, change, pause, resume and delete jobs.

Guaranteed: a change never fires a slot that has passed and never loses one silently: the cursor is written here only,
under the row lock, to the first slot after the database's now, and what lies before it is noted as skipped. A change
based on an older version of the job is refused. It would break if a form or a serializer saved a Job by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from django.db import IntegrityError, transaction

from scheduler_app.core.errors import EveryslotError, InvalidDefinition, InvalidSchedule
from scheduler_app.core.retry import RetryOverrides, RetryPolicy, resolve
from scheduler_app.core.text import unstorable_string
from scheduler_app.instrument import emit
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.rules import InvalidJob, is_storable
from scheduler_app.lifecycle.timing import first_slot, schedule_of
from scheduler_app.lifecycle.validate import TAKEN, changed, faults_of, moves_slots, validate, with_changes
from scheduler_app.models import Job
from scheduler_app.models.job import Origin
from scheduler_app.store.define import database_now, note_passed, notify_jobs, remove_ahead

__all__ = [
    "FOREVER",
    "JobMissing",
    "VersionConflict",
    "create",
    "delete",
    "effective_retry",
    "find",
    "is_paused",
    "pause",
    "resume",
    "update",
    "validate",
]

FOREVER: Final = datetime(9999, 12, 31, tzinfo=UTC)
DECLARED_BY_TASK: Final = ("queue", "priority", "starting_deadline", "time_limit")
COUNTED: Final = 100_000  # passed slots counted one by one at most


class JobMissing(EveryslotError):
    """No such job, or it was deleted."""

    code: ClassVar[str] = "job_missing"


class VersionConflict(EveryslotError):
    """The job was changed by somebody else since it was read; `current` and `expected` are its versions."""

    code: ClassVar[str] = "version_conflict"

    def __init__(self, name: str, current: int, expected: int) -> None:
        super().__init__(name, current, expected)
        self.name = name
        self.current = current
        self.expected = expected

    def __str__(self) -> str:
        return (
            f"{self.name} was changed by somebody else meanwhile (it is at version {self.current}, this change was "
            f"made from version {self.expected}): look at it again and repeat the change"
        )


def create(fields: Mapping[str, Any], *, origin: str, by: str = "") -> Job:
    """A new job; raises InvalidJob with all faults. Its first slot is the first one strictly after now.

    What `fields` leave out is as the task declares it (`DECLARED_BY_TASK`), else the default.
    """
    fields = {**_declared(fields.get("task")), **fields}
    with transaction.atomic():
        _refuse(validate(fields))
        now = database_now()
        job = with_changes(None, fields, now)
        job.origin = Origin(origin)
        job.created_at = job.updated_at = now  # the instant from which its slots count
        job.next_run_at = _cursor(job, now)
        _save(job)
    emit("job.created", job=job.pk, name=job.name, by=by)
    return job


def _declared(task: object) -> dict[str, Any]:
    options = catalog.find(task) if isinstance(task, str) else None
    found = {name: getattr(options, name, None) for name in DECLARED_BY_TASK}
    return {name: value for name, value in found.items() if value is not None}


def update(
    job_id: int,
    changes: Mapping[str, Any],
    *,
    expected_version: int | None = None,
    by: str = "",
    note: str | None = None,
) -> Job:
    """Change fields of a job; raises JobMissing, VersionConflict, or InvalidJob with all faults.

    What does not touch the schedule leaves the cursor; unstarted runs recorded ahead are recorded anew. An edit that
    leaves the whole definition sound lifts a quarantine. `note` replaces the reason shown beside a disabled job.
    """
    with transaction.atomic():
        old = _locked(job_id, expected_version)
        changes = changed(old, changes)
        _refuse(validate(changes, old))
        now = database_now()
        job = with_changes(old, changes, now)
        lifts = job.quarantined_at is not None and not faults_of(job)
        if not changes and not lifts:
            return job
        if note is not None or (changes.get("enabled") and not job.paused_until):
            job.pause_reason = note or ""
        _take_back(job)
        if lifts or moves_slots(job, changes):
            _leave_behind(old, now, "quarantined" if old.quarantined_at else "edited")
            job.next_run_at = _cursor(job, now)
        if lifts:
            _lift(job)
        _bump(job, now)
    emit("job.updated", job=job.pk, name=job.name, fields=sorted(changes), by=by)
    return job


def pause(job_id: int, reason: str, *, until: datetime | None = None, by: str = "") -> Job:
    """Let no slot run until an instant (aware), or until somebody resumes; the slots in between are skipped, visibly.

    Raises JobMissing, or InvalidJob for an instant that has passed. Runs that have started go on.
    """
    with transaction.atomic():
        job = _locked(job_id)
        now = database_now()
        _refuse(_pause_faults(reason, until, now))
        job.paused_until, job.pause_reason = until or FOREVER, reason
        _take_back(job)
        _bump(job, now)
    emit("job.paused", job=job.pk, name=job.name, reason=reason, until=until, by=by)
    return job


def resume(job_id: int, *, by: str = "") -> Job:
    """End a pause, lift a quarantine and enable; nothing of the past runs.

    Raises JobMissing, or InvalidJob if the definition is not sound (the reason of a quarantine still holds).
    """
    with transaction.atomic():
        job = _locked(job_id)
        now = database_now()
        _refuse(faults_of(job))
        if job.enabled:
            _leave_behind(job, now, "quarantined" if job.quarantined_at else "paused")
        _take_back(job)
        job.enabled, job.paused_until, job.pause_reason = True, None, ""
        _lift(job)
        job.next_run_at = _cursor(job, now)
        _bump(job, now)
    emit("job.resumed", job=job.pk, name=job.name, by=by)
    return job


def delete(job_id: int, *, by: str = "") -> Job:
    """Delete softly: the row and its runs stay for the record, the name becomes free. Raises JobMissing."""
    with transaction.atomic():
        job = _locked(job_id)
        now = database_now()
        _take_back(job)
        mark = f" (deleted {job.pk})"
        job.name = job.name[: 200 - len(mark)] + mark
        job.enabled, job.deleted_at, job.next_run_at = False, now, None
        _bump(job, now)
    emit("job.deleted", job=job.pk, name=job.name, by=by)
    return job


def find(name: str) -> Job:
    """The live job of that name; raises JobMissing."""
    # What cannot be stored is nobody's name, and no question for the database.
    job = None if unstorable_string(name) else Job.objects.live().filter(name=name).first()
    if job is None:
        raise JobMissing(f"there is no job {name!r}")
    return job


def is_paused(job: Job, now: datetime) -> bool:
    """Whether slots of the job are skipped at this instant (the database's now)."""
    return job.paused_until is not None and job.paused_until > now


def effective_retry(job: Job) -> RetryPolicy:
    """How the job's runs are retried: as the job says, else as its task declares, else the defaults."""
    options = catalog.find(job.task)
    own = RetryOverrides(job.max_attempts, job.retry_backoff, job.retry_backoff_max, job.retry_jitter)
    return resolve(own, *([options.retry] if options else []))


def _refuse(faults: list[InvalidDefinition]) -> None:
    if faults:
        raise InvalidJob(faults)


def _locked(job_id: int, expected_version: int | None = None) -> Job:
    job = Job.objects.live().select_for_update().filter(pk=job_id).first()
    if job is None:
        raise JobMissing(f"there is no job with the id {job_id}")
    if expected_version is not None and job.version != expected_version:
        raise VersionConflict(job.name, job.version, expected_version)
    return job


def _pause_faults(reason: str, until: datetime | None, now: datetime) -> list[InvalidDefinition]:
    faults = []
    if len(reason) > 500 or not reason.isprintable():
        faults.append(InvalidDefinition("pause_reason", "must be one line of at most 500 characters"))
    if until is not None and until.tzinfo is None:
        faults.append(InvalidDefinition("paused_until", "must name its offset from UTC"))
    elif until is not None and not is_storable(until):
        faults.append(InvalidDefinition("paused_until", "lies outside the years 1 to 9998"))
    elif until is not None and until <= now:
        faults.append(InvalidDefinition("paused_until", "lies in the past"))
    return faults


def _cursor(job: Job, now: datetime) -> datetime | None:
    """The first slot strictly after now, None where none will be recorded."""
    return first_slot(job, now) if job.enabled else None


def _take_back(job: Job) -> None:
    """Remove unstarted runs recorded ahead; the cursor goes back to the first of their slots."""
    slots = remove_ahead(job.pk)
    if slots:
        job.next_run_at = slots[0]
        job.recorded_runs = max(0, job.recorded_runs - len(slots))


def _leave_behind(job: Job, now: datetime, reason: str) -> None:
    """Note the slots from the cursor to now that no recorder has decided: the change leaves them behind."""
    if not job.enabled or job.next_run_at is None or job.next_run_at > now:
        return
    try:
        schedule = schedule_of(job)
    except InvalidSchedule:
        return
    slots = schedule.between(job.next_run_at, now, COUNTED) if schedule else []
    if slots:
        note_passed(job.pk, slots[0], slots[-1], len(slots), reason, job.version)


def _lift(job: Job) -> None:
    job.quarantined_at, job.quarantine_reason = None, ""


def _bump(job: Job, now: datetime) -> None:
    job.version += 1
    job.updated_at = now
    _save(job)


def _save(job: Job) -> None:
    try:
        with transaction.atomic():
            job.save()
    except IntegrityError as error:
        if "job_name" in str(error) or "(name)" in str(error):
            raise InvalidJob([InvalidDefinition("name", TAKEN)]) from error
        raise
    transaction.on_commit(notify_jobs, robust=True)
