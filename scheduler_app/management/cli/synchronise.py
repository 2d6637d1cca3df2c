"""`jobs sync`: make jobs of the schedules that tasks declare."""

from __future__ import annotations

import argparse
import dataclasses

from scheduler_app.lifecycle.sync import sync
from scheduler_app.management.cli.output import Output
from scheduler_app.management.cli.verb import OK, REFUSED, Verb, who


def arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(options: argparse.Namespace, out: Output) -> int:
    done = sync(by=who())
    out.data(dataclasses.asdict(done))
    rows = [
        (word, name, "") for word in ("created", "updated", "unchanged", "disabled") for name in getattr(done, word)
    ]
    rows += [("refused", name, reason) for name, reason in done.refused.items()]
    out.table(("WHAT", "JOB", "WHY"), rows, "No task declares a schedule.")
    return REFUSED if done.refused else OK


VERB = Verb("sync", "make jobs of the schedules that tasks declare in code", arguments, run)
