"""`jobs show`: everything about one job."""

from __future__ import annotations

import argparse

from scheduler_app.core.errors import InvalidSchedule
from scheduler_app.lifecycle.define import effective_retry, find
from scheduler_app.lifecycle.overview import job_values, run_values, runs_of, state_of, why
from scheduler_app.lifecycle.timing import Preview, preview
from scheduler_app.management.cli.output import Output, instant
from scheduler_app.management.cli.runs import COLUMNS, row
from scheduler_app.management.cli.verb import OK, Verb, job_name
from scheduler_app.models import Job
from scheduler_app.store.define import database_now

SLOTS, RUNS = 5, 5


def run(options: argparse.Namespace, out: Output) -> int:
    job, now = find(options.name), database_now()
    runs = list(runs_of(job.pk).select_related("job")[:RUNS])
    retry = effective_retry(job)
    coming = _preview(job)
    out.data(
        job_values(job, now)
        | {"words": coming.words, "next_slots": coming.slots, "runs": [run_values(each) for each in runs]}
    )
    delays = f"{retry.backoff:g} s doubling to {retry.backoff_max:g} s"
    out.pairs(
        [
            ("job", job.name),
            ("state", state_of(job, now).value),
            ("why", why(job, now)),
            ("task", job.task),
            ("payload", job.payload),
            ("schedule", f"{job.schedule}  {coming.words}".strip()),
            ("next", "\n".join(instant(slot, job.timezone) for slot in coming.slots)),
            ("overlap", job.concurrency_policy),
            ("missed slots", job.catch_up),
            ("queue", f"{job.queue}, priority {job.priority}"),
            ("time limit", f"{job.time_limit} s"),
            ("attempts", f"{retry.max_attempts}, after {delays}" + (" at random" if retry.jitter else "")),
            ("made by", f"{job.origin}, version {job.version}"),
        ]
    )
    out.say("")
    out.table(COLUMNS, [row(each) for each in runs], "It has not run yet.")
    return OK


def _preview(job: Job) -> Preview:
    """What comes next; a schedule that became bad is told, not raised."""
    try:
        return preview(job, database_now(), SLOTS)
    except InvalidSchedule as error:
        return Preview(f"(cannot run: {error})", "UTC", ())


VERB = Verb("show", "everything about one job", job_name, run)
