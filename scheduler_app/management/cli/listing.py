"""`jobs list`: every job in one line."""

from __future__ import annotations

import argparse

from django.db.models import Q

from scheduler_app.lifecycle.overview import job_values, last_run, state_of, with_last_run
from scheduler_app.management.cli.output import Output, instant
from scheduler_app.management.cli.verb import OK, Verb
from scheduler_app.models import Job
from scheduler_app.store.define import database_now


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("search", nargs="?", default="", help="only jobs with this in their name or task")


def run(options: argparse.Namespace, out: Output) -> int:
    now = database_now()
    wanted = Q(name__icontains=options.search) | Q(task__icontains=options.search)
    jobs = list(with_last_run(Job.objects.live().filter(wanted)))
    out.data([job_values(job, now) | {"last_run": _last(job)} for job in jobs])
    out.table(
        ("JOB", "STATE", "SCHEDULE", "NEXT", "LAST RUN", "TASK"),
        [
            (
                job.name,
                state_of(job, now).value,
                job.schedule,
                instant(job.next_run_at, job.timezone),
                last.status if (last := last_run(job)) else "",
                job.task,
            )
            for job in jobs
        ],
        "There are no jobs. Add one with `jobs add`, or declare schedules on tasks and run `jobs sync`.",
    )
    return OK


def _last(job: Job) -> dict[str, object] | None:
    last = last_run(job)
    return {"id": last.id, "status": last.status, "scheduled_for": last.at} if last else None


VERB = Verb("list", "every job: its state, its next slot, its last run", arguments, run)
