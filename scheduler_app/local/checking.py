"""`make check`: everything that judges the code without running the whole of it. All steps run; any fault fails."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scheduler_app.local.services import Services
from scheduler_app.local.testing import environment

PYTHON = (sys.executable, "-m")
MANAGE = (sys.executable, "manage.py")


@dataclass(frozen=True)
class Step:
    """One check: what it is called, the command, and what its environment has besides."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


def steps() -> Sequence[Step]:
    """The checks, the quick ones first."""
    # As deployed: a key of its own, and no debugging.
    deployed = {"DEBUG": "false", "SECRET_KEY": secrets.token_urlsafe(64)}
    return (
        Step("ruff", (*PYTHON, "ruff", "check", ".")),
        Step("format", (*PYTHON, "ruff", "format", "--check", ".")),
        Step("migrations", (*MANAGE, "makemigrations", "--check", "--dry-run")),
        Step("deploy", (*MANAGE, "check", "--deploy", "--fail-level", "WARNING"), deployed),
        Step("types", (*PYTHON, "mypy")),
        Step("contract", (*PYTHON, "pytest", "tests/contract")),
    )


def run_checks(folder: Path, wanted: Sequence[str]) -> int:
    """Run the named steps (all unless given) on a private PostgreSQL; 0 only if every one passed."""
    chosen = [step for step in steps() if not wanted or step.name in wanted]
    if unknown := set(wanted) - {step.name for step in chosen}:
        print(f"no such check: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    with Services(folder, apt=True) as services:
        services.start(["postgres"], durable=False)
        env = environment(services)
        failed = [step.name for step in chosen if not _passes(step, env | step.env)]
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed", flush=True)
    return 1 if failed else 0


def _passes(step: Step, env: dict[str, str]) -> bool:
    result = subprocess.run(
        step.argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    passed = result.returncode == 0
    print(f"{'ok  ' if passed else 'FAIL'} {step.name}", flush=True)
    if not passed:
        print(result.stdout, flush=True)
    return passed
