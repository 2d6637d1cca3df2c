"""How jobs and runs are shown: the state of a job in one word, its last run, and plain values for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import JSONObject, Now

from scheduler_app.lifecycle.define import FOREVER, is_paused
from scheduler_app.lifecycle.rules import FIELDS
from scheduler_app.models import Job, JobRun


class JobState(StrEnum):
    """The one thing to know about a job first."""

    DELETED = "deleted"
    QUARANTINED = "quarantined"
    DISABLED = "disabled"
    PAUSED = "paused"
    ON_DEMAND = "on demand"
    ENDED = "ended"
    ENABLED = "enabled"


@dataclass(frozen=True, slots=True)
class LastRun:
    """The newest run of a job."""

    id: str
    status: str
    at: datetime


def state_of(job: Job, now: datetime) -> JobState:
    """The state of a job at `now` (the database's)."""
    facts = {
        JobState.DELETED: job.deleted_at is not None,
        JobState.QUARANTINED: job.quarantined_at is not None,
        JobState.DISABLED: not job.enabled,
        JobState.PAUSED: is_paused(job, now),
        JobState.ON_DEMAND: not job.schedule.strip(),
        JobState.ENDED: job.next_run_at is None,
    }
    return next((state for state, holds in facts.items() if holds), JobState.ENABLED)


def why(job: Job, now: datetime) -> str:
    """Why the job does not run as its schedule says; empty if it does."""
    state = state_of(job, now)
    if state is JobState.QUARANTINED:
        return job.quarantine_reason
    if state is JobState.PAUSED and job.paused_until and job.paused_until < FOREVER:
        return f"until {job.paused_until:%Y-%m-%d %H:%M:%S} UTC" + (f": {job.pause_reason}" if job.pause_reason else "")
    return job.pause_reason if state in (JobState.PAUSED, JobState.DISABLED) else ""


def runs_of(job_id: Any) -> QuerySet[JobRun]:
    """The runs of one job, newest first, by its own stretch of an index however many other runs there are.

    The job is given as a range: told of an equality, PostgreSQL may walk all runs backwards by `seq`, which takes
    seconds for a job without recent runs; the order of a range only the index of (job, seq) can give.
    """
    return JobRun.objects.filter(job__gte=job_id, job__lte=job_id).order_by("job_id", "-seq")


def with_last_run(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """The jobs with their newest run (read it with `last_run`) and the database's time as `seen_at`."""
    found = runs_of(OuterRef("pk")).values(found=JSONObject(id="id", status="status", at="scheduled_for"))
    return jobs.annotate(newest_run=Subquery(found[:1]), seen_at=Now())


def last_run(job: Job) -> LastRun | None:
    """The newest run of a job that came from `with_last_run`."""
    annotated: Any = job
    found = annotated.newest_run
    return LastRun(found["id"], found["status"], datetime.fromisoformat(found["at"])) if found else None


def job_values(job: Job, now: datetime) -> dict[str, Any]:
    """A job as plain values, for JSON."""
    values = {name: getattr(job, name) for name in FIELDS}
    forever = job.paused_until is not None and job.paused_until >= FOREVER
    return {
        "id": job.pk,
        "state": state_of(job, now).value,
        "why": why(job, now),
        **values,
        "next_run_at": job.next_run_at,
        "paused": is_paused(job, now),
        "paused_until": None if forever else job.paused_until,
        "pause_reason": job.pause_reason,
        "quarantine_reason": job.quarantine_reason,
        "origin": job.origin,
        "version": job.version,
    }


def run_values(run: JobRun) -> dict[str, Any]:
    """A run as plain values, for JSON."""
    names = (
        "id", "task", "status", "reason", "scheduled_for", "attempts", "max_attempts", "run_after", "started_at",
        "finished_at", "trigger", "triggered_by", "queue", "priority", "args", "payload", "result", "last_error",
    )  # fmt: skip
    return {"job": run.job.name if run.job else None} | {name: getattr(run, name) for name in names}
