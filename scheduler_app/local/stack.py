"""The programs of a deployment, started here as anybody would start them: web, beats and workers, with their logs."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from scheduler_app.local.ports import LOOPBACK
from scheduler_app.local.processes import Launch, Process, signal_group
from scheduler_app.local.service import CannotHave

ROOT = Path(__file__).resolve().parents[2]
CELERY = [sys.executable, "-m", "celery", "-A", "config"]
MANAGE = [sys.executable, "manage.py"]


class Stack:
    """Starts programs under an environment and stops them all at the end; a context manager."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.logs = folder / "logs"
        self.logs.mkdir(exist_ok=True)
        temporary = folder / "tmp"  # what a killed program leaves goes with our folder
        temporary.mkdir(exist_ok=True)
        self.env = {**env, "TMPDIR": str(temporary)}
        self.programs: dict[str, Process] = {}

    def __enter__(self) -> Stack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def beat(self, name: str) -> Process:
        return self._start(name, [*CELERY, "beat", "--loglevel=INFO"])

    def worker(self, name: str, concurrency: int = 2) -> Process:
        arguments = ["worker", f"--hostname={name}@%h", f"--concurrency={concurrency}", "--loglevel=INFO"]
        return self._start(name, [*CELERY, *arguments])

    def web(self, port: int) -> Process:
        return self._start("web", [*MANAGE, "runserver", "--noreload", f"{LOOPBACK}:{port}"])

    def enter(self) -> None:
        """Let this process see what the programs see, and set Django up."""
        os.environ.clear()
        os.environ.update(self.env)
        import django

        django.setup()

    def kill(self, name: str) -> None:
        """SIGKILL, to the program and its children at once: what an out-of-memory kill or a lost node does."""
        pid = self.programs[name].pid
        if pid is not None:
            signal_group(pid, signal.SIGKILL)

    def ended(self) -> dict[str, str]:
        """The programs that have ended, with the last lines of their logs."""
        return {name: program.tail() for name, program in self.programs.items() if not program.running}

    def stop(self) -> None:
        """Ask all at once, then wait for each."""
        for program in self.programs.values():
            if program.running:
                program.signal(signal.SIGTERM)
        for program in self.programs.values():
            program.stop()

    def _start(self, name: str, argv: list[str]) -> Process:
        launch = Launch(name, argv, ROOT, self.logs / f"{name}.log", env=self.env, grace=15.0)
        self.programs[name] = Process(launch)
        self.programs[name].start()
        return self.programs[name]


@contextmanager
def own_database(url: str, name: str) -> Iterator[str]:
    """A new database on this server, dropped at the end; yields its URL. Raises CannotHave."""
    name = f"{name}_{secrets.token_hex(4)}"
    try:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    except psycopg.Error as error:
        reason = f"DATABASE_URL leads to a server on which no database can be created ({error})"
        raise CannotHave("PostgreSQL", reason, "grant CREATEDB to its user, or unset DATABASE_URL") from None
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
