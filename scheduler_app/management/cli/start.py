"""`jobs run`: start a run of a job now."""

from __future__ import annotations

import argparse
import time
from uuid import UUID

from scheduler_app.core.states import FINAL
from scheduler_app.lifecycle.define import find
from scheduler_app.lifecycle.overview import run_values
from scheduler_app.lifecycle.rules import payload_from_text
from scheduler_app.lifecycle.trigger import run_now
from scheduler_app.management.cli.output import Output
from scheduler_app.management.cli.runs import because
from scheduler_app.management.cli.verb import OK, REFUSED, Verb, job_name, positive, who
from scheduler_app.models import JobRun
from scheduler_app.models.run import Status

POLL = 0.2  # seconds


def arguments(parser: argparse.ArgumentParser) -> None:
    job_name(parser)
    parser.add_argument("--payload", help="other arguments than the job's own, as a JSON object")
    parser.add_argument("--wait", action="store_true", help="wait for the end; exit code 0 only if it succeeded")
    parser.add_argument("--timeout", type=positive, default=3600, help="seconds to wait at most (default 3600)")


def run(options: argparse.Namespace, out: Output) -> int:
    payload = None if options.payload is None else payload_from_text(options.payload)
    run_id = run_now(find(options.name), who(), payload)
    if options.wait:
        out.say(f"Started {options.name}: run {run_id}. Waiting for its end.")
        return _wait(run_id, options.timeout, out)
    out.data(run_values(JobRun.objects.select_related("job").get(pk=run_id)))
    out.say(f"Started {options.name}: run {run_id}.")
    return OK


def _wait(run_id: UUID, timeout: float, out: Output) -> int:
    deadline = time.monotonic() + timeout
    found = JobRun.objects.select_related("job").get(pk=run_id)
    while found.status not in FINAL and time.monotonic() < deadline:
        time.sleep(POLL)
        found.refresh_from_db()
    out.data(run_values(found))
    reason = because(found)
    attempts = "1 attempt" if found.attempts == 1 else f"{found.attempts} attempts"
    out.say(f"It is {found.status} after {attempts}" + (f": {reason}" if reason else "."))
    return OK if found.status == Status.SUCCEEDED else REFUSED


VERB = Verb("run", "start a run of a job now", arguments, run, "jobs run report --wait")
