"""Sync: the schedules declared on tasks become jobs.

Guaranteed: only jobs that code owns are touched, and of those only what the declaration says: a pause, a disabled
switch and every field that a declaration cannot name stay as a person left them. It would break if a job that a
person made were adopted because of its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from scheduler_app.core.errors import EveryslotError, InvalidDefinition
from scheduler_app.core.limits import PRIORITY_DEFAULT, TIME_LIMIT_DEFAULT
from scheduler_app.core.options import TaskOptions
from scheduler_app.lifecycle import catalog, define
from scheduler_app.lifecycle.validate import changed
from scheduler_app.models import Job
from scheduler_app.models.job import Origin

GONE: Final = "its declaration was removed from the code"
DECLARED: Final = ("task", "schedule", "timezone", "queue", "priority", "starting_deadline", "time_limit")


class NothingDeclared(EveryslotError):
    """No task is known at all: the modules were not loaded, and a sync would switch every declared job off."""

    code = "nothing_declared"


@dataclass(slots=True)
class Synced:
    """Names of jobs by what became of them; `refused` has the reason with each."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    disabled: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def sync(by: str = "sync") -> Synced:
    """Bring the jobs of origin code in line with what the known tasks declare; raises NothingDeclared."""
    if not catalog.all_tasks():
        raise NothingDeclared("no durable task is known here: the modules with the tasks were not loaded")
    result = Synced()
    declared = _by_name(result)
    jobs = {job.name: job for job in Job.objects.live().filter(name__in=declared)}
    for name, options in declared.items():
        try:
            _bring_in_line(name, options, jobs.get(name), result, by)
        except EveryslotError as error:
            result.refused[name] = str(error)
    for job in Job.objects.live().filter(origin=Origin.CODE, enabled=True).exclude(name__in=declared):
        define.update(job.pk, {"enabled": False}, by=by, note=GONE)
        result.disabled.append(job.name)
    return result


def _by_name(result: Synced) -> dict[str, TaskOptions]:
    declared: dict[str, TaskOptions] = {}
    for options in catalog.all_tasks():
        name = options.job_name or options.name
        if options.schedule and name in declared:
            result.refused[name] = f"{declared[name].name} and {options.name} declare a job of the same name"
        elif options.schedule:
            declared[name] = options
    return declared


def _bring_in_line(name: str, options: TaskOptions, job: Job | None, result: Synced, by: str) -> None:
    fields = _fields(options)
    if job is None:
        define.create({"name": name, **fields}, origin=Origin.CODE, by=by)
        result.created.append(name)
        return
    if job.origin != Origin.CODE:
        raise InvalidDefinition("name", f"is taken by a job of origin {job.origin}, which a declaration never changes")
    changes = changed(job, fields)
    if not job.enabled and job.pause_reason == GONE:
        changes["enabled"] = True
    if changes:
        define.update(job.pk, changes, by=by)
        result.updated.append(name)
    else:
        result.unchanged.append(name)


def _fields(options: TaskOptions) -> dict[str, Any]:
    return {
        "task": options.name,
        "schedule": options.schedule,
        "timezone": options.timezone,
        "queue": options.queue,
        "priority": PRIORITY_DEFAULT if options.priority is None else options.priority,
        "starting_deadline": options.starting_deadline,
        "time_limit": TIME_LIMIT_DEFAULT if options.time_limit is None else options.time_limit,
    }
