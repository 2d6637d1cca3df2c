"""pytest-celery's nodes as native processes: where Docker exists, its own containers can take their place.

pytest-celery asks a container only for what is here (api/base.py and api/worker.py of pytest-celery 1.3).
"""

from __future__ import annotations

import signal as signals
from typing import Any
from uuid import uuid4

import celery

from tests.support.programs import WORKLOAD, Programs, WorkerProcess

TASKS = f"{WORKLOAD},pytest_celery.vendors.worker.tasks"  # with the task by which it pings


class Elsewhere:
    """A service that is not ours to start: it only says how to reach it."""

    status = "running"

    def __init__(self, name: str, url: str) -> None:
        self.name, self.id = name, uuid4().hex
        self._url = url

    @property
    def celeryconfig(self) -> dict[str, Any]:
        return {"url": self._url, "host_url": self._url}

    def ready(self) -> bool:
        return True

    def teardown(self) -> None:
        """It stays."""


class NativeWorker:
    """A worker process under the names by which pytest-celery knows a container."""

    def __init__(self, programs: Programs, name: str) -> None:
        self.name, self.id = name, uuid4().hex
        self._programs = programs
        self._process = self._start()

    @property
    def celeryconfig(self) -> dict[str, Any]:
        return {}

    @property
    def status(self) -> str:
        return "running" if self._process.alive else "exited"

    def logs(self) -> str:
        return self._process.log

    def ready(self) -> bool:
        return self._process.ready().alive

    def kill(self, signal: str | int = "SIGKILL") -> None:
        number = getattr(signals, signal) if isinstance(signal, str) else signal
        self._process.kill(number)
        self._process.wait()

    def reload(self) -> None:
        """A process has no state of its own that could be out of date."""

    def restart(self, timeout: float = 10) -> None:
        self._process.end()
        self._process = self._start()
        self.ready()

    def teardown(self) -> None:
        self._process.end()

    def worker_name(self) -> str:
        return self.name

    def worker_queue(self) -> str:
        return "default"

    def log_level(self) -> str:
        return "INFO"

    def version(self) -> str:
        return celery.__version__

    def _start(self) -> WorkerProcess:
        return self._programs.worker(self.name, EVERYSLOT_TASK_MODULES=TASKS)
