"""`jobs next`: when a job, or an expression nobody has saved yet, runs next."""

from __future__ import annotations

import argparse
from zoneinfo import ZoneInfo

from scheduler_app.lifecycle.rules import InvalidJob
from scheduler_app.lifecycle.timing import Preview, preview
from scheduler_app.lifecycle.validate import schedule_faults, with_changes
from scheduler_app.management.cli.output import Output, instant
from scheduler_app.management.cli.verb import OK, Verb, bounded
from scheduler_app.models import Job
from scheduler_app.store.define import database_now


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="EXPR|NAME", help="a schedule in quotes, or the name of a job")
    parser.add_argument("--tz", help="time zone of the expression (default UTC), or to show a job's slots in")
    parser.add_argument("--count", "-n", type=bounded, default=10, help="how many (default 10)")


def run(options: argparse.Namespace, out: Output) -> int:
    now = database_now()
    job = Job.objects.live().filter(name=options.what).first()
    zone = options.tz or (job.timezone if job else "UTC")
    if job is None or options.tz:
        _refuse(with_changes(None, {"schedule": "" if job else options.what, "timezone": zone}, now))
    subject = job or with_changes(None, {"schedule": options.what, "timezone": zone}, now)
    _refuse(subject)
    _show(preview(subject, now, options.count), subject, zone, out)
    return OK


def _refuse(job: Job) -> None:
    if faults := schedule_faults(job):
        raise InvalidJob(faults)


def _show(coming: Preview, subject: Job, zone: str, out: Output) -> None:
    slots = [{"utc": slot, "local": slot.astimezone(ZoneInfo(zone)).isoformat()} for slot in coming.slots]
    out.data({"schedule": subject.schedule, "timezone": zone, "words": coming.words, "slots": slots})
    out.say(coming.words)
    out.table((zone, "UTC"), [(instant(slot, zone), instant(slot)) for slot in coming.slots])


VERB = Verb(
    "next",
    "when a job or an expression runs next, in its zone and in UTC, and what it means in English",
    arguments,
    run,
    'jobs next "0 9 * * 1-5" --tz Europe/Berlin',
)
