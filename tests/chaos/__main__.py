"""`python -m tests.chaos --minutes 10 --seed 1 --stack embedded|full`: exit code 0 only if every check held."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from scheduler_app.local.processes import wait_for
from scheduler_app.local.service import StartFailed
from scheduler_app.local.services import KINDS, Services
from scheduler_app.local.stack import Stack, own_database
from scheduler_app.local.supervise import supervise

T = TypeVar("T")
START: Final = 60.0
QUIET: Final = 150.0  # seconds at most from the last fault until every run has ended
LOOK: Final = 0.2
TRIES: Final = 60
LEAST, MOST = 0.6, 120.0  # minutes


def main(arguments: list[str]) -> int:
    """Play it on private services, so that only what is ours is broken."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long slots and faults come (default: 10)")
    parser.add_argument("--seed", type=int, help="replays the faults of a seed (default: a new one)")
    parser.add_argument("--stack", choices=["embedded", "full"], default="embedded", help="full: RabbitMQ and Redis")
    options = parser.parse_args(arguments)
    if not LEAST <= options.minutes <= MOST:
        parser.error(f"--minutes must be from {LEAST} to {MOST}: each job needs a slot, and it has to end by itself")
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    return supervise(lambda folder: _run(folder, options.minutes * 60, seed, options.stack == "full"))


def _run(folder: Path, seconds: float, seed: int, full: bool) -> int:
    with Services(folder, environ={}, apt=full) as services:
        services.start(list(KINDS) if full else ["postgres"])
        with (
            own_database(services.running["postgres"].url, "everyslot_chaos") as url,
            Stack(folder, _environment(services, url)) as stack,
        ):
            return _play(stack, services, seconds, seed)


def _environment(services: Services, url: str) -> dict[str, str]:
    base = {name: value for name, value in services.environment().items() if not name.startswith("EVERYSLOT_")}
    return base | {
        "DATABASE_URL": url,
        "SECRET_KEY": secrets.token_urlsafe(50),
        "DEBUG": "true",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "CELERY_SKIP_CHECKS": "1",
        "EVERYSLOT_TASK_MODULES": "tasks,tests.chaos.work",
        "EVERYSLOT_LEASE": "4",
        "EVERYSLOT_HEARTBEAT": "1",
        "EVERYSLOT_TERM": "3",
        "EVERYSLOT_LOOP": "0.5",
        "EVERYSLOT_DISPATCH_TIMEOUT": "8",
        "EVERYSLOT_CANCEL_GRACE": "2",
        "EVERYSLOT_PREFETCH": "2",
        "EVERYSLOT_STOP_GRACE": "10",
    }


def _play(stack: Stack, services: Services, seconds: float, seed: int) -> int:
    stack.enter()
    from django.core.management import call_command

    from scheduler_app.lifecycle.loading import import_tasks
    from scheduler_app.local.demo.board import show_verdict
    from scheduler_app.store.define import database_now
    from tests.chaos.faults import Faults
    from tests.chaos.jobs import define_jobs
    from tests.chaos.verdict import judge
    from tests.chaos.work import make_tables

    call_command("migrate", verbosity=0)
    import_tasks()
    make_tables()
    random = Random(seed)
    faults = Faults(stack, services, random)
    faults.start()
    _await_workers(stack)
    number = define_jobs(database_now() + timedelta(seconds=seconds), random)
    began = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {words}", flush=True)

    say(f"seed {seed}: {number} jobs, {', '.join(service.name for service in services.running.values())}")
    while time.monotonic() - began < seconds:
        for words in faults.turn():
            say(words)
        time.sleep(LOOK)
    for words in faults.calm():
        say(words)
    say("quiet")
    at = time.monotonic()
    if not wait_for(lambda: _patiently(_is_over), QUIET):
        say(f"not everything had ended after {QUIET:.0f} s")
    say(f"everything had ended {time.monotonic() - at:.1f} s after the last fault")
    from rich.console import Console

    console = Console(width=160)
    console.print("\n".join(f"  {count:4}  {kind}" for kind, count in sorted(faults.count.items())))
    held = show_verdict(console, _patiently(judge))
    print(f"replay it with: make chaos SEED={seed} MINUTES={seconds / 60:g}", flush=True)
    if not held and (kept := os.environ.get("CHAOS_LOGS")):
        _keep_logs(stack, Path(kept))
    return 0 if held else 1


def _await_workers(stack: Stack) -> None:
    from scheduler_app.models import Worker
    from tests.chaos.faults import WORKERS

    if not wait_for(lambda: Worker.objects.filter(stopped_at=None).count() == len(WORKERS), START):
        raise StartFailed("\n".join(f"{name}:\n{program.tail()}" for name, program in stack.programs.items()))


def _is_over() -> bool:
    """Every slot is recorded, every run has ended, and every message is used up."""
    from scheduler_app.models import Job, JobRun
    from tests.chaos.verdict import queues_empty

    waiting = Job.objects.filter(next_run_at__isnull=False).exists()
    return not waiting and not JobRun.objects.filter(finished_at=None).exists() and queues_empty().held


def _patiently(ask: Callable[[], T]) -> T:
    """The answer of a database that may just have cut us off."""
    from django.db import DatabaseError, connections

    for _ in range(TRIES):
        with suppress(DatabaseError):
            return ask()
        connections.close_all()
        time.sleep(LOOK)
    return ask()


def _keep_logs(stack: Stack, folder: Path) -> None:
    import shutil

    shutil.copytree(stack.logs, folder, dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
