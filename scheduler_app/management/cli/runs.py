"""`jobs runs`: the latest runs."""

from __future__ import annotations

import argparse

from scheduler_app.lifecycle.define import find
from scheduler_app.lifecycle.overview import run_values, runs_of
from scheduler_app.management.cli.output import Output, instant
from scheduler_app.management.cli.verb import OK, Verb, limit
from scheduler_app.models import JobRun
from scheduler_app.models.run import Status

COLUMNS = ("RUN", "JOB", "STATUS", "SLOT", "ATTEMPTS", "ENDED", "WHY")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="only runs of this job")
    parser.add_argument("--status", choices=Status.values, help="only runs in this state")
    limit(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    runs = (runs_of(find(options.name).pk) if options.name else JobRun.objects.order_by("-seq")).select_related("job")
    if options.status:
        runs = runs.filter(status=options.status)
    show(list(runs[: options.limit]), out)
    return OK


def show(runs: list[JobRun], out: Output) -> None:
    """The runs as a table, or as JSON."""
    out.data([run_values(each) for each in runs])
    out.table(COLUMNS, [row(each) for each in runs], "There are no such runs.")


def row(run: JobRun) -> tuple[object, ...]:
    """One line of the table."""
    job = run.job.name if run.job else run.task
    tried = f"{run.attempts} of {run.max_attempts}"
    return run.id, job, run.status, instant(run.scheduled_for), tried, instant(run.finished_at), because(run)


def because(run: JobRun) -> str:
    """Why the run is as it is: the code of its end and the last line of its error."""
    error = run.last_error.strip().rpartition("\n")[2][:120] if run.status != Status.SUCCEEDED else ""
    return ": ".join(part for part in (run.reason, error) if part)


VERB = Verb("runs", "the latest runs, of one job or of all", arguments, run, "jobs runs --status dead -n 50")
