"""`jobs cancel` and `jobs redrive`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from uuid import UUID

from django.db.models import QuerySet

from scheduler_app.core.states import ACTIVE
from scheduler_app.lifecycle.cancel import cancel as cancel_runs
from scheduler_app.lifecycle.dead import Which, dead_runs
from scheduler_app.lifecycle.define import find
from scheduler_app.lifecycle.redrive import redrive as redrive_runs
from scheduler_app.management.cli.output import Output
from scheduler_app.management.cli.runs import show
from scheduler_app.management.cli.verb import OK, REFUSED, Verb, past, positive, who
from scheduler_app.models import JobRun

FILTERS = ("task", "queue", "why", "error", "since", "until", "limit")


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
    parser.add_argument("--task", default="", help="of those, only runs of this task")
    parser.add_argument("--queue", default="", help="of those, only runs of this queue")
    parser.add_argument(
        "--why", default="", help="of those, only runs that died for this reason, e.g. attempts_exhausted"
    )
    parser.add_argument("--error", default="", help="of those, only runs whose error has this text in it")
    parser.add_argument("--since", type=past, help="of those, only runs that died then or later, e.g. 2h ago: 2h")
    parser.add_argument("--until", type=past, help="of those, only runs that died before, e.g. 30m ago: 30m")
    parser.add_argument("--limit", type=positive, help="at most so many of those, the oldest first")
    parser.add_argument("--rate", type=float, metavar="N", help="let at most N of them be due a second")
    parser.add_argument("--dry-run", action="store_true", help="show which runs would go, and send none")
    parser.add_argument("--attempts", type=positive, help="further attempts (default: as many as a new run gets)")
    parser.add_argument("--reason", default="", help="what was mended, for the record")


def redrive(options: argparse.Namespace, out: Output) -> int:
    by_id = not (options.job or options.all_dead)
    if by_id and (named := [name for name in FILTERS if getattr(options, name)]):
        out.refusal(f"--{named[0]} chooses among the runs of --job or --all-dead, not among ids")
        return REFUSED
    found = JobRun.objects.filter(pk__in=options.ids).order_by("seq") if by_id else _dead(options)
    if options.dry_run:
        show(list(found.select_related("job")), out)
        return OK
    ids = options.ids if by_id else list(found.values_list("id", flat=True))
    sent = redrive_runs(ids, who(), more=options.attempts, reason=options.reason, rate=options.rate)
    out.data({"redriven": sent})
    out.table(("RUN", "WHAT"), [(each, "queued again") for each in sent], empty="")
    return _verdict(ids, set(sent), "dead or cancelled", out, not by_id)


def _dead(options: argparse.Namespace) -> QuerySet[JobRun]:
    job = find(options.job) if options.job else None
    given = {name: getattr(options, name) for name in ("task", "queue", "error", "since", "until")}
    return dead_runs(Which(job=job, reason=options.why, **given))[: options.limit]


def _of_job(name: str, statuses: list[str]) -> list[UUID]:
    runs = JobRun.objects.filter(status__in=statuses, job=find(name))
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
    'jobs redrive --job report --reason "the disk has room again"\n'
    "jobs redrive --all-dead --why attempts_exhausted --error ConnectionError --since 2h --rate 10",
)
