"""`jobs dead`: runs that get no further attempt, until somebody redrives them."""

from __future__ import annotations

import argparse

from scheduler_app.lifecycle.define import find
from scheduler_app.management.cli.output import Output
from scheduler_app.management.cli.runs import show
from scheduler_app.management.cli.verb import OK, Verb, limit
from scheduler_app.models import JobRun
from scheduler_app.models.run import Status


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="only runs of this job")
    limit(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    runs = JobRun.objects.filter(status=Status.DEAD).select_related("job").order_by("-finished_at")
    if options.name:
        runs = runs.filter(job=find(options.name))
    show(list(runs[: options.limit]), out)
    return OK


VERB = Verb("dead", "dead runs with their reasons; send them back with `jobs redrive`", arguments, run)
