"""`jobs add`: define a job."""

from __future__ import annotations

import argparse

from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.lifecycle.define import create
from scheduler_app.lifecycle.overview import job_values
from scheduler_app.lifecycle.rules import InvalidJob, payload_from_text
from scheduler_app.lifecycle.validate import validate
from scheduler_app.management.cli.output import Output, instant
from scheduler_app.management.cli.verb import OK, Verb, given, job_name, who
from scheduler_app.models.job import CatchUp, ConcurrencyPolicy, Origin
from scheduler_app.store.define import database_now

GIVEN = (
    "task", "schedule", "timezone", "queue", "priority", "concurrency_policy", "catch_up", "time_limit",
    "max_attempts", "jitter", "starting_deadline",
)  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    job_name(parser)
    parser.add_argument("--task", required=True, help="the name of the task, such as tasks.reports.monthly_csv")
    parser.add_argument("--schedule", help='"0 9 * * 1", "@every 90s", "@at 2026-12-01T09:00:00Z"; empty: on demand')
    parser.add_argument("--tz", dest="timezone", help="IANA time zone of the schedule (default UTC)")
    parser.add_argument("--payload", help="the task's keyword arguments as a JSON object")
    parser.add_argument("--queue", help="which queue its runs wait in (default: the task's)")
    parser.add_argument("--priority", type=int, help="0 to 9, higher first (default: the task's, else 4)")
    parser.add_argument("--policy", dest="concurrency_policy", choices=ConcurrencyPolicy.values, help="overlap policy")
    parser.add_argument("--catch-up", choices=CatchUp.values, help="which missed slots run")
    parser.add_argument(
        "--time-limit", type=int, help="seconds after which an attempt is killed (default: the task's, else 900)"
    )
    parser.add_argument("--max-attempts", type=int, help="attempts of a run (default: as the task declares, else 5)")
    parser.add_argument("--jitter", type=int, help="seconds by which each start may be moved back")
    parser.add_argument("--starting-deadline", type=int, help="seconds after which a late slot is skipped")
    parser.add_argument("--disabled", action="store_true", help="add it switched off")


def run(options: argparse.Namespace, out: Output) -> int:
    fields = {"name": options.name, "enabled": not options.disabled, **given(options, *GIVEN)}
    try:
        fields["payload"] = payload_from_text(options.payload or "")
    except InvalidDefinition as error:
        raise InvalidJob([*validate(fields), error]) from None
    job = create(fields, origin=Origin.ADMIN, by=who())
    out.data(job_values(job, database_now()))
    first = (
        f"It first runs at {instant(job.next_run_at, job.timezone)}." if job.next_run_at else "No slot is ahead of it."
    )
    out.say(f"Added {job.name}. {first}")
    return OK


VERB = Verb(
    "add",
    "define a job",
    arguments,
    run,
    'jobs add "month report" --task tasks.reports.monthly_csv --schedule "0 9 1 * *" --tz Europe/Berlin',
)
