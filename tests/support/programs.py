"""Real beats and workers as child processes on the test's database, and waiting for what they do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from tests.support.brokers import broker_url, database_url

ROOT = Path(__file__).resolve().parents[2]
CELERY = "from celery.__main__ import main; main()"
WORKLOAD = "tasks,tests.support.workload"


def wait_until(condition: Callable[[], object], seconds: float = 60.0, what: str = "it") -> None:
    """Wait until the condition holds; AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        pause.wait(0.02)


def promised(seconds: float) -> timedelta:
    """The time that the product promises, held to by `make proof`, which runs alone on the machine.

    `make test` allows three times as long: there two test processes and all their programs share the cores.
    """
    return timedelta(seconds=seconds if os.environ.get("EVERYSLOT_STRICT") else 3 * seconds)


class Program:
    """One `celery -A config …`; `before` is Python run in it first, to set a trap."""

    def __init__(self, folder: Path, name: str, arguments: list[str], *, before: str = "", **environ: str) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        env = {key: value for key, value in os.environ.items() if key not in ("BROKER_URL", "REDIS_URL")}
        env |= {"DATABASE_URL": database_url(), "DEBUG": "true", "CELERY_SKIP_CHECKS": "1"} | environ
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-c", f"{before}\n{CELERY}", "-A", "config", *arguments],
                cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def lines_of_error(self) -> list[str]:
        return [line for line in self.log.splitlines() if "ERROR" in line or "CRITICAL" in line or "Traceback" in line]

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def kill(self, number: int) -> None:
        self._child.send_signal(number)

    def wait(self, seconds: float = 60) -> int:
        """Its exit code."""
        return self._child.wait(seconds)

    def says(self, text: str, seconds: float = 60) -> None:
        """Wait until its log holds the text."""
        wait_until(lambda: text in self.log or not self.alive, seconds, f"{self.name} to say {text!r}")
        assert text in self.log, self.log

    def end(self) -> None:
        """End it and everything that it started."""
        if self.alive:
            self._child.send_signal(signal.SIGCONT)
            self._child.terminate()
            try:
                self._child.wait(10)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait(10)


class BeatProcess(Program):
    """One `celery -A config beat`."""

    def __init__(self, folder: Path, name: str, **given: Any) -> None:
        super().__init__(folder, name, ["beat", "--loglevel=INFO"], **given)

    def ready(self) -> BeatProcess:
        """Wait until its loops run."""
        self.says("beat: Starting")
        assert self.alive, self.log
        return self

    def leads(self) -> BeatProcess:
        """Wait until it leads."""
        wait_until(lambda: self.leading, 60, f"{self.name} to lead")
        return self

    @property
    def leading(self) -> bool:
        """Whether it leads, by its own log."""
        return self.log.rfind("leading, epoch") > self.log.rfind("standing by")


class WorkerProcess(Program):
    """One `celery -A config worker`, which knows tests/support/workload.py besides the project's tasks."""

    def __init__(
        self, folder: Path, name: str, *, concurrency: int = 1, queues: str = "", pool: str = "", **given: Any
    ) -> None:
        arguments = ["worker", "--loglevel=INFO", f"--concurrency={concurrency}", f"--hostname={name}@test"]
        arguments += [f"--queues={queues}"] if queues else []
        arguments += [f"--pool={pool}"] if pool else []
        super().__init__(folder, name, arguments, **{"EVERYSLOT_TASK_MODULES": WORKLOAD} | given)

    def ready(self) -> WorkerProcess:
        """Wait until it consumes."""
        wait_until(lambda: re.search(r"@test ready\.", self.log) or not self.alive, 60, f"{self.name} to be ready")
        assert self.alive, self.log
        return self

    @property
    def children(self) -> list[psutil.Process]:
        """The processes of its pool."""
        return psutil.Process(self.pid).children()

    def freeze(self) -> list[psutil.Process]:
        """Stop it and its pool where they are; returns what was stopped, for `resume`."""
        stopped = [psutil.Process(self.pid), *self.children]
        for each in stopped:
            each.suspend()
        return stopped

    def end(self) -> None:
        children = self.children if self.alive else []
        super().end()
        _, left = psutil.wait_procs(children, timeout=5)
        for child in left:
            child.kill()


class Programs:
    """Starts programs by name, in one folder for their logs; `broker` is `postgres` or `rabbitmq`."""

    def __init__(self, folder: Path, broker: str) -> None:
        self._folder = folder
        self._broker = {"BROKER_URL": broker_url(broker)}
        self.made: list[Program] = []

    def beat(self, name: str = "beat", **given: Any) -> BeatProcess:
        """Start a beat; `before` is Python run first, the rest is environment."""
        return self._keep(BeatProcess(self._folder, name, **self._broker | given))

    def worker(self, name: str = "worker", **given: Any) -> WorkerProcess:
        """Start a worker with `concurrency`, `queues` and `pool`; see also `beat`."""
        return self._keep(WorkerProcess(self._folder, name, **self._broker | given))

    def worker_of(self, child: int | None) -> WorkerProcess:
        """The worker to whose pool this process belongs."""
        parent = psutil.Process(child).ppid()
        return next(each for each in self.made if isinstance(each, WorkerProcess) and each.pid == parent)

    def _keep(self, program: Any) -> Any:
        self.made.append(program)
        return program


@contextmanager
def programs(broker: str = "postgres") -> Iterator[Programs]:
    """Start programs; all are ended, whatever happens. tests/conftest.py shows their logs when a test fails."""
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        started = Programs(Path(folder), broker)
        try:
            yield started
        finally:
            for each in started.made:
                each.end()
