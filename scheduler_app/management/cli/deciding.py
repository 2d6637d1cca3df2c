"""`jobs cancel` and `jobs redrive`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from uuid import UUID

from scheduler_app.core.states import ACTIVE
from scheduler_app.lifecycle.cancel import cancel as cancel_runs
from scheduler_app.lifecycle.define import find
from scheduler_app.lifecycle.redrive import redrive as redrive_runs
from scheduler_app.management.cli.output import Output
from scheduler_app.management.cli.verb import OK, REFUSED, Verb, positive, who
from scheduler_app.models import JobRun
from scheduler_app.models.run import Status


def cancel_arguments(parser: argparse.ArgumentParser) -> None:
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("ids", nargs="*", type=UUID, default=[], help="ids of runs")
    wanted.add_argument("--job", help="every queued and running run of this job")


def cancel(options: argparse.Namespace, out: Output) -> int:
    ids = _of_job(options.job, [state.value for state in ACTIVE]) if options.job else options.ids
    done = cancel_runs(ids, who())
    out.data({"cancelled": done.ended, "asked_to_stop": done.asked})
    rows = [(each, "cancelled") for each in done.ended] + [(each, "asked to stop") for each in done.asked]
    out.table(("RUN", "WHAT"), rows, empty="")
    return _verdict(ids, {*done.ended, *done.asked}, "queued or running", out, bool(options.job))


def redrive_arguments(parser: argparse.ArgumentParser) -> None:
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("ids", nargs="*", type=UUID, default=[], help="ids of dead or cancelled runs")
    wanted.add_argument("--job", help="every dead run of this job")
    wanted.add_argument("--all-dead", action="store_true", help="every dead run of all jobs")
    parser.add_argument("--attempts", type=positive, help="further attempts (default: as many as a new run gets)")
    parser.add_argument("--reason", default="", help="what was mended, for the record")


def redrive(options: argparse.Namespace, out: Output) -> int:
    by_id = not (options.job or options.all_dead)
    ids = options.ids if by_id else _of_job(options.job, [Status.DEAD.value])
    sent = redrive_runs(ids, who(), more=options.attempts, reason=options.reason)
    out.data({"redriven": sent})
    out.table(("RUN", "WHAT"), [(each, "queued again") for each in sent], empty="")
    return _verdict(ids, set(sent), "dead or cancelled", out, not by_id)


def _of_job(name: str | None, statuses: list[str]) -> list[UUID]:
    runs = JobRun.objects.filter(status__in=statuses)
    if name:
        runs = runs.filter(job=find(name))
    return list(runs.order_by("seq").values_list("id", flat=True))


def _verdict(wanted: Sequence[UUID], done: set[UUID], allowed: str, out: Output, bulk: bool) -> int:
    """What was named but could not be done is a refusal; of a bulk, what changed meanwhile is not."""
    left = [each for each in wanted if each not in done]
    if bulk or not left:
        return OK
    states = dict(JobRun.objects.filter(pk__in=left).values_list("id", "status"))
    for each in left:
        state = f"it is {states[each]}, not {allowed}" if each in states else "there is no such run"
        out.refusal(f"{each}: {state}")
    return REFUSED


CANCEL = Verb(
    "cancel", "end queued runs, ask running ones to stop", cancel_arguments, cancel, "jobs cancel --job report"
)
REDRIVE = Verb(
    "redrive",
    "send dead or cancelled runs back to the queue with further attempts",
    redrive_arguments,
    redrive,
    'jobs redrive --job report --reason "the disk has room again"',
)
