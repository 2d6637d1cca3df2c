"""Real beats as child processes on the test's database, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.brokers import database_url

ROOT = Path(__file__).resolve().parents[2]


def wait_until(condition: Callable[[], object], seconds: float = 30.0, what: str = "it") -> None:
    """Wait until the condition holds; AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        pause.wait(0.02)


class BeatProcess:
    """One `celery -A config beat`; `before` is Python run in it first, to set a trap."""

    def __init__(self, folder: Path, name: str, *, before: str = "", **environ: str) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        start = "from celery.__main__ import main; main()"
        env = {key: value for key, value in os.environ.items() if key not in ("BROKER_URL", "REDIS_URL")}
        env |= {"DATABASE_URL": database_url(), "DEBUG": "true", "CELERY_SKIP_CHECKS": "1"} | environ
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-c", f"{before}\n{start}", "-A", "config", "beat", "--loglevel=INFO"],
                cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def lines_of_error(self) -> list[str]:
        return [line for line in self.log.splitlines() if "ERROR" in line or "CRITICAL" in line or "Traceback" in line]

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def ready(self) -> BeatProcess:
        """Wait until its loops run."""
        wait_until(lambda: "beat: Starting" in self.log or not self.alive, 60, f"{self.name} to start")
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

    def kill(self, number: int) -> None:
        self._child.send_signal(number)

    def wait(self, seconds: float = 30) -> int:
        """Its exit code."""
        return self._child.wait(seconds)

    def end(self) -> None:
        if self.alive:
            self._child.send_signal(signal.SIGCONT)
            self._child.terminate()
            try:
                self._child.wait(10)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait(10)


@contextmanager
def beats() -> Iterator[Callable[..., BeatProcess]]:
    """Start beats by name; all are ended, whatever happens, and shown when a test fails."""
    made: list[BeatProcess] = []
    with tempfile.TemporaryDirectory(prefix="beats-") as folder:

        def start(name: str, **given: str) -> BeatProcess:
            made.append(BeatProcess(Path(folder), name, **given))
            return made[-1]

        try:
            yield start
        except BaseException:
            for each in made:
                print(f"--- {each.name}\n{each.log}")
            raise
        finally:
            for each in made:
                each.end()
