"""`jobs pause` and `jobs resume`."""

from __future__ import annotations

import argparse
from datetime import timedelta

from scheduler_app.lifecycle import define
from scheduler_app.lifecycle.overview import job_values, why
from scheduler_app.management.cli.output import Output, instant
from scheduler_app.management.cli.verb import OK, Verb, job_name, moment, who
from scheduler_app.store.define import database_now


def arguments(parser: argparse.ArgumentParser) -> None:
    job_name(parser)
    parser.add_argument("--reason", default="", help="why, for whoever finds it paused")
    parser.add_argument("--until", type=moment, help="2026-12-01T09:00:00+01:00, or 90s, 2h, 3d from now")


def pause(options: argparse.Namespace, out: Output) -> int:
    now = database_now()
    until = now + options.until if isinstance(options.until, timedelta) else options.until
    job = define.pause(define.find(options.name).pk, options.reason, until=until, by=who())
    out.data(job_values(job, now))
    out.say(f"Paused {job.name} {why(job, now) if until else 'until somebody resumes it'}.")
    return OK


def resume(options: argparse.Namespace, out: Output) -> int:
    job = define.resume(define.find(options.name).pk, by=who())
    out.data(job_values(job, database_now()))
    following = (
        f"It runs next at {instant(job.next_run_at, job.timezone)}." if job.next_run_at else "It runs on demand."
    )
    out.say(f"Resumed {job.name}. {following}")
    return OK


PAUSE = Verb(
    "pause", "let no slot of a job run; runs that started go on", arguments, pause, "jobs pause report --until 2h"
)
RESUME = Verb("resume", "end a pause or a quarantine, and enable; nothing of the past runs", job_name, resume)
