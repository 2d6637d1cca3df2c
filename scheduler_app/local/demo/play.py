"""Play the demo: start everything, let the scene happen under the board's eyes, wait for the last run, judge."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scheduler_app.local.processes import wait_for
from scheduler_app.local.service import StartFailed
from scheduler_app.local.services import KINDS, Services
from scheduler_app.local.stack import Stack, own_database

if TYPE_CHECKING:
    from scheduler_app.local.demo.board import Board
    from scheduler_app.local.demo.scene import Scene

SECONDS: Final = 30.0
LEAST: Final = 15.0
SETTLE: Final = 40.0  # seconds at most from the last slot until every run has ended
START: Final = 60.0
LOOK: Final = 0.25


def run_demo(folder: Path, arguments: Sequence[str]) -> int:
    """Run the main job with crashes and judge the promise; 0 only if it held."""
    options = _options(arguments)
    full = options.stack == "full"
    wanted = list(KINDS) if full else ["postgres"]
    given = {name: value for name, value in os.environ.items() if full or name.startswith("DATABASE_URL")}
    with Services(folder, environ=given, apt=full) as services:
        services.start(wanted)
        for service in services.running.values():
            print(f"{service.name}: {service.origin}", flush=True)
        with own_database(services.running["postgres"].url, "everyslot_demo") as url:
            environment = _environment(services, url, folder)
            with Stack(folder, environment) as stack:
                code = _play(stack, full, options.seconds)
                if code and options.logs:
                    shutil.copytree(folder / "logs", options.logs, dirs_exist_ok=True)
                return code


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=run_demo.__doc__)
    parser.add_argument("--stack", choices=["local", "full"], default="local", help="full: on RabbitMQ and Redis")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long slots come (default: %(default)s)")
    parser.add_argument("--logs", type=Path, help="a folder for the programs' logs if the promise does not hold")
    options = parser.parse_args(arguments)
    if not options.seconds >= LEAST:
        parser.error(f"--seconds must be {LEAST:.0f} or more: the crashes need their time")
    return options


def _environment(services: Services, url: str, folder: Path) -> dict[str, str]:
    """What the programs see: the services, a key, a place for files; none of the caller's own settings of ours."""
    base = {name: value for name, value in services.environment().items() if not name.startswith("EVERYSLOT_")}
    media = folder / "media"
    return base | {
        "DATABASE_URL": url,
        "SECRET_KEY": secrets.token_urlsafe(50),
        "DEBUG": "true",
        "EVERYSLOT_MEDIA_ROOT": str(media),
        # What a leader marked and did not publish before it was killed is sent again after so many seconds, within the
        # time that we wait for the last run.
        "EVERYSLOT_DISPATCH_TIMEOUT": "10",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "CELERY_SKIP_CHECKS": "1",
    }


def _play(stack: Stack, full: bool, seconds: float) -> int:
    stack.enter()
    from django.core.management import call_command

    from scheduler_app.lifecycle.loading import import_tasks
    from scheduler_app.local.demo.board import Board, show_verdict
    from scheduler_app.local.demo.scene import BEATS, WORKERS, Scene
    from scheduler_app.local.demo.verdict import judge

    call_command("migrate", verbosity=0)
    import_tasks()
    print("starting two beats and three workers", flush=True)
    for name in BEATS:
        stack.beat(name)
    for name in WORKERS:
        stack.worker(name)
    _await_start(stack)
    scene = Scene(stack, full)
    with Board(stack, seconds + 5) as board:
        _let_it_happen(board, scene, seconds)
    return 0 if show_verdict(board.console, judge(scene.story)) else 1


def _await_start(stack: Stack) -> None:
    from scheduler_app.local.demo.scene import WORKERS, leading
    from scheduler_app.models import Worker

    def started() -> bool:
        if ended := stack.ended():
            raise StartFailed("\n".join(f"{name} ended:\n{tail}" for name, tail in ended.items()))
        return Worker.objects.filter(stopped_at=None).count() == len(WORKERS) and leading(stack) is not None

    if not wait_for(started, START):
        raise StartFailed(f"beats and workers did not start within {START:.0f} s")


def _let_it_happen(board: Board, scene: Scene, seconds: float) -> None:
    """Until the last slot has passed and every run has ended, or until that takes too long."""
    from scheduler_app.local.demo.scene import define_jobs
    from scheduler_app.store.define import database_now

    define_jobs(until=database_now() + timedelta(seconds=seconds))
    board.tell("four jobs are defined, of every 1, 3, 4 and 5 seconds")
    deadline = seconds + SETTLE
    while board.elapsed < deadline:
        for sentence in scene.act(board.elapsed / seconds):
            board.tell(sentence, "bold magenta")
        board.refresh()
        if board.elapsed > seconds and scene.over and _settled():
            return
        time.sleep(LOOK)
    print(f"not everything had ended {SETTLE:.0f} s after the last slot", file=sys.stderr)


def _settled() -> bool:
    """Every slot is recorded and every run has ended."""
    from scheduler_app.core.states import Status
    from scheduler_app.models import Job, JobRun

    open_runs = JobRun.objects.filter(status__in=[Status.QUEUED.value, Status.RUNNING.value])
    return not Job.objects.filter(next_run_at__isnull=False).exists() and not open_runs.exists()
