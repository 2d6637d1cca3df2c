"""What every verb of `manage.py jobs` is made of, and the arguments that several share."""

from __future__ import annotations

import argparse
import getpass
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from scheduler_app.management.cli.output import Output

OK, REFUSED = 0, 1
_DURATION = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Verb:
    """`run` gets the parsed options and returns the exit code."""

    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Output], int]
    examples: str = ""


def job_name(parser: argparse.ArgumentParser) -> None:
    """The argument that names a job."""
    parser.add_argument("name", help="the name of the job")


MOST_SHOWN = 10_000


def limit(parser: argparse.ArgumentParser, default: int = 20) -> None:
    """How many rows to show."""
    parser.add_argument(
        "--limit", "-n", type=bounded, default=default, help=f"how many, newest first (default {default})"
    )


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def bounded(text: str) -> int:
    """A whole number from 1 to 10,000: more than that is read from the database, not from a terminal."""
    if not text.isdecimal() or not 1 <= int(text[:6]) <= MOST_SHOWN or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 1 to {MOST_SHOWN}")
    return int(text)


def moment(text: str) -> datetime | timedelta:
    """An instant with its offset, or a length of time from now such as 90s, 2h or 3d."""
    if found := _DURATION.fullmatch(text):
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither like 2026-12-01T09:00:00+01:00 nor like 90s, 2h or 3d")
    return instant


def past(text: str) -> datetime:
    """An instant with its offset, or so long ago."""
    found = moment(text)
    return datetime.now(UTC) - found if isinstance(found, timedelta) else found


def who() -> str:
    """The person at the keyboard, as the system knows them."""
    try:
        return f"{getpass.getuser()} (command)"
    except (KeyError, OSError):
        return "command"


def given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the options that were given."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}
