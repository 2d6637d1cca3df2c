"""`python manage.py jobs …`: define, watch and operate jobs from a shell."""

from __future__ import annotations

import argparse
import sys
from typing import Any, TextIO, cast

from django.core.management.base import BaseCommand, CommandParser
from django.db import OperationalError, ProgrammingError

from scheduler_app.core.errors import EveryslotError
from scheduler_app.lifecycle.loading import load_tasks
from scheduler_app.management.cli import VERBS
from scheduler_app.management.cli.output import Output
from scheduler_app.management.cli.verb import REFUSED

EPILOG = """
exit codes:
  0  done
  1  refused or not found: the reason is on the error stream, with the field's name where there is one
  2  the command line itself is wrong

Every verb takes --json: one JSON document on the output; with exit code 1 the fault is JSON on the error stream.
"""


class DatabaseUnusable(EveryslotError):
    """The database is away, or has not been migrated."""

    code = "database_unusable"

    def __init__(self, error: Exception) -> None:
        mend = "is it up, and has `python manage.py migrate` been run?"
        super().__init__(f"the database cannot be used: {str(error).strip().splitlines()[0]} - {mend}")


class Command(BaseCommand):
    help = "Define, watch and operate jobs and their runs."
    requires_system_checks: list[str] = []

    suppressed_base_arguments = {
        "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color", "--force-color",
    }  # fmt: skip

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = EPILOG
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for verb in VERBS:
            description = verb.summary[0].upper() + verb.summary[1:] + "."
            example = f"example:\n  python manage.py {verb.examples}" if verb.examples else None
            its = verbs.add_parser(
                verb.name,
                help=verb.summary,
                description=description,
                epilog=example,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            its.add_argument("--json", action="store_true", help="print JSON instead of tables")
            verb.arguments(its)
            its.set_defaults(act=verb.run)

    def handle(self, *args: Any, **options: Any) -> None:
        out = Output(cast(TextIO, self.stdout._out), cast(TextIO, self.stderr._out), options["json"])
        try:
            load_tasks()
            code = options["act"](argparse.Namespace(**options), out)
        except EveryslotError as error:
            out.fault(error)
            code = REFUSED
        except (OperationalError, ProgrammingError) as error:
            out.fault(DatabaseUnusable(error))
            code = REFUSED
        if code:
            sys.exit(code)
