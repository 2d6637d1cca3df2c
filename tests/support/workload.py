"""Tasks that tests work on with real workers. Each writes what it did as lines of a file, which the test reads."""

from __future__ import annotations

import ctypes
import os
import signal
import time
import urllib.request
from contextlib import suppress
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

from celery import shared_task
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, transaction

from scheduler_app import current_run, durable_task
from scheduler_app.core.errors import Cancelled, LostGround
from scheduler_app.models import DeadLetter


def note(path: str, text: str) -> None:
    """Append one line, whole even beside other processes (O_APPEND, write(2))."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{text}\n".encode())
    finally:
        os.close(descriptor)


def lines(path: Path) -> list[str]:
    """What was noted."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def noted_pid(path: Path, event: str, attempt: int) -> int | None:
    """The process that noted the start or end of this attempt of `gated`."""
    words = (line.split() for line in lines(path))
    return next((int(pid) for said, number, pid in words if (said, number) == (event, str(attempt))), None)


@durable_task(time_limit=60)
def noted(path: str, text: str = "done") -> str:
    """Note the text and the attempt."""
    note(path, f"{text} {current_run().attempt}")
    return text


@durable_task(time_limit=60, retry_backoff=1, retry_backoff_max=1)
def gated(path: str, gate: str) -> int:
    """Note the start, work until the gate file is there, note the end; `{attempt}` in its name makes one for each."""
    attempt = current_run().attempt
    note(path, f"start {attempt} {os.getpid()}")
    while not Path(gate.format(attempt=attempt)).exists():
        time.sleep(0.02)
    note(path, f"end {attempt} {os.getpid()}")
    return attempt


@durable_task(time_limit=60, long_running=True)
def gated_long(path: str, gate: str) -> int:
    """As `gated`, with a message that is acknowledged early."""
    return int(gated.run(path, gate))


@durable_task(time_limit=60)
def looking(path: str, safe_point: str) -> None:
    """Work until one of these safe points says to stop: check, progress, step."""
    run = current_run()
    note(path, f"start {run.attempt} {os.getpid()}")
    turns = count()
    points = {"check": run.check, "progress": lambda: run.progress(50), "step": lambda: run.step(f"{next(turns)}", int)}
    try:
        while True:
            points[safe_point]()
            time.sleep(0.02)
    except Cancelled:
        note(path, f"stopped {run.attempt}")
        raise


@durable_task(transactional=True, time_limit=60, retry_backoff=1, retry_backoff_max=0.01)
def booking(path: str, name: str, gate: str, failures: int = 0) -> int:
    """As `gated`, but first write a row and enqueue `noted`, both with the attempt; the first attempts fail at the end.

    The row is a dead letter of no run: the one table of ours that takes the same row twice, so that it can be counted.
    """
    attempt = current_run().attempt
    DeadLetter.objects.create(reason=name, detail=str(attempt))
    noted.delay(path, f"follower {name}-{attempt}")
    gated.run(path, gate)
    if attempt <= failures:
        raise ValueError("this booking fails")
    return attempt


@durable_task(time_limit=120)
def holding_the_interpreter(seconds: float) -> int:
    """Hold the interpreter's lock for so long: `sleep` of the C library, called without letting go of it."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return current_run().attempt


@durable_task(time_limit=60, max_retries=2, retry_backoff=1, retry_backoff_max=1)
def exiting(code: int = 1) -> None:
    """End the pool child."""
    os._exit(code)


@durable_task(time_limit=60)
def paying(url: str) -> str:
    """Charge at a server that honours keys; a worker that has charged (201) is killed before it hears of it."""
    run = current_run()
    wanted = urllib.request.Request(url, data=b"", headers={"Idempotency-Key": run.idempotency_key})
    with urllib.request.urlopen(wanted, timeout=30) as answer:
        receipt: str = answer.read().decode()
    if answer.status == HTTPStatus.CREATED:
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(1)
    return receipt


@durable_task(time_limit=60)
def dying_once(path: str) -> str:
    """Note the run's key; the first attempt's worker is killed right after."""
    run = current_run()
    note(path, run.idempotency_key)
    if run.attempt == 1:
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(1)
    return run.idempotency_key


@durable_task(time_limit=60)
def fencing(path: str, name: str, gate: str) -> None:
    """As `gated`, then write a group with the attempt, if this attempt may still write."""
    attempt = current_run().attempt
    gated.run(path, gate)
    try:
        current_run().fenced(Group.objects).create(name=f"{name} {attempt}")
    except LostGround:
        note(path, f"refused {attempt} {os.getpid()}")
        raise


@shared_task
def plain(path: str, text: str = "plain") -> str:
    """An ordinary Celery task."""
    note(path, text)
    return text


@durable_task(time_limit=60)
def echo(value: Any = None) -> Any:
    """Return what it is given."""
    return value


@durable_task(time_limit=60)
def writing(name: str) -> int:
    """Write a row (a group of that name, whatever it is there for)."""
    Group.objects.create(name=name)
    return current_run().attempt


@durable_task(time_limit=60)
def leaving(how: str) -> None:
    """Leave the connection as no task should."""
    connection.ensure_connection()
    if how == "autocommit off":
        transaction.set_autocommit(False)
        Group.objects.exists()
    elif how == "BEGIN":
        connection.cursor().execute("BEGIN")
    elif how == "atomic entered":
        transaction.atomic().__enter__()
    elif how == "an error in a transaction":
        connection.cursor().execute("BEGIN")
        with suppress(DatabaseError):
            connection.cursor().execute("SELECT 1 / 0")
    else:
        connection.connection.close()
