"""`python -m scheduler_app.local COMMAND …`: what the Makefile calls. Each command cleans up after itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scheduler_app.local.checking import run_checks
from scheduler_app.local.demo.play import run_demo
from scheduler_app.local.service import CannotHave, StartFailed
from scheduler_app.local.supervise import supervise
from scheduler_app.local.testing import run_command, run_tests
from scheduler_app.local.up import run_up

COMMANDS: Mapping[str, Callable[[Path, Sequence[str]], int]] = {
    "demo": run_demo,  # --stack local|full, --seconds N
    "up": run_up,  # --port N
    "test": run_tests,  # arguments of pytest
    "check": run_checks,  # names of checks
    "run": run_command,  # a command and its arguments
}
WRONG_USAGE = 2
CANNOT_HAVE = 3


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code (3: a service that it needs cannot be had here)."""
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        print(f"usage: python -m scheduler_app.local {'|'.join(COMMANDS)} [arguments]", file=sys.stderr)
        return WRONG_USAGE
    return supervise(lambda folder: _told(lambda: command(folder, arguments[1:])))


def _told(work: Callable[[], int]) -> int:
    """Expected faults as one line, not as a traceback."""
    try:
        return work()
    except (CannotHave, StartFailed) as fault:
        print(fault, file=sys.stderr)
        return CANNOT_HAVE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
