"""`jobs remove`: delete a job softly."""

from __future__ import annotations

import argparse

from scheduler_app.lifecycle.define import delete, find
from scheduler_app.management.cli.output import Output
from scheduler_app.management.cli.verb import OK, Verb, job_name, who


def run(options: argparse.Namespace, out: Output) -> int:
    job = delete(find(options.name).pk, by=who())
    out.data({"id": job.pk, "name": job.name, "deleted_at": job.deleted_at})
    out.say(f"Deleted {options.name}. Its runs stay on record; the name is free again.")
    return OK


VERB = Verb("remove", "delete a job; its runs stay on record", job_name, run)
