"""`make test` and other commands that need private services: start them, run it, leave nothing behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scheduler_app.local.service import NativeService
from scheduler_app.local.services import KINDS, Services
from scheduler_app.local.supervise import Interrupted

# Seconds. A Ctrl-C in the terminal has reached the command as well; only if it has not is it passed on.
PATIENCE = 3.0
TEARDOWN = 30.0


def run_tests(folder: Path, arguments: Sequence[str]) -> int:
    """Run pytest on private services; returns its exit code.

    At home RabbitMQ and Redis may be missing (said aloud, their tests are skipped); with CI=true they may not.
    """
    strict = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    with Services(folder, apt=True) as services:
        services.start(KINDS, durable=False, optional=() if strict else ("rabbitmq", "redis"))
        for fault in services.missing:
            print(f"skipping the tests that need it: {fault}", file=sys.stderr, flush=True)
        return foreground([sys.executable, "-m", "pytest", *_side_by_side(services), *arguments], environment(services))


def _side_by_side(services: Services) -> list[str]:
    """Two test processes, each with its own database, virtual host and Redis database, where all of that is ours."""
    if os.environ.get("EVERYSLOT_STRICT"):  # times are measured: nothing else may want the cores
        return []
    given = any(os.environ.get(kind.variable) for kind in KINDS.values())
    if given or not isinstance(services.running.get("rabbitmq"), NativeService):  # a container has one virtual host
        return []
    return ["-p", "tests.support.side_by_side", "-n", "2", "--dist", "loadfile", "--durations", "15"]


def run_command(folder: Path, argv: Sequence[str]) -> int:
    """Run any command on all three services at their default durability (for figures); returns its exit code."""
    with Services(folder, apt=True) as services:
        services.start(KINDS)
        return foreground(argv, environment(services))


def environment(services: Services) -> dict[str, str]:
    """What our settings need, and a temporary folder that goes with the services' own, whatever is left in it."""
    for service in services.running.values():
        print(f"{service.name}: {service.origin}", flush=True)
    temporary = services.folder / "tmp"
    temporary.mkdir()
    temporary.chmod(0o711)
    settings = {"SECRET_KEY": secrets.token_urlsafe(50), "DEBUG": "true", "TMPDIR": str(temporary)}
    return services.environment() | settings


def foreground(argv: Sequence[str], env: dict[str, str]) -> int:
    """Run a command on our terminal; when we are interrupted it gets time to tear down."""
    child = subprocess.Popen(argv, env=env)
    try:
        code = child.wait()
        return code if code >= 0 else 128 - code
    except Interrupted:
        for patience, number in ((PATIENCE, signal.SIGINT), (TEARDOWN, signal.SIGKILL)):
            try:
                child.wait(patience)
                break
            except subprocess.TimeoutExpired:
                child.send_signal(number)
        child.wait()
        raise
