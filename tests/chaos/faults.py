"""The faults. Each says what was done; what it breaks is mended by a later turn, at the latest at the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from random import Random
from typing import Final

import psutil
import psycopg

from scheduler_app.local.processes import signal_group
from scheduler_app.local.service import NativeService
from scheduler_app.local.services import Services
from scheduler_app.local.stack import Stack

BEATS: Final = ("beat-1", "beat-2")
WORKERS: Final = ("worker-1", "worker-2", "worker-3")
CONCURRENCY: Final = 4
LEASE, TERM = 4.0, 3.0
PAUSE: Final = (0.5, 4.0)  # seconds between two faults
BACK: Final = (1.0, 6.0)  # seconds until what was killed comes back
FROZEN: Final = (1.0, LEASE + 5.0)  # seconds: shorter and longer than a lease and a term


class Faults:
    """Breaks and mends a stack by chance; what is chosen depends on `random` alone."""

    def __init__(self, stack: Stack, services: Services, random: Random) -> None:
        self._stack, self._services, self._random = stack, services, random
        self._mends: list[tuple[float, str, Callable[[], object]]] = []
        self._next = 0.0
        self.count: dict[str, int] = {}
        self._kinds = self._weights()

    def start(self) -> None:
        """Start every program."""
        for name in BEATS:
            self._stack.beat(name)
        for name in WORKERS:
            self._stack.worker(name, CONCURRENCY)

    def turn(self) -> list[str]:
        """Mend what is due, then perhaps break something."""
        now = time.monotonic()
        said = self._mend(now)
        if now < self._next:
            return said
        self._next = now + self._random.uniform(*PAUSE)
        (kind,) = self._random.choices(list(self._kinds), [weight for weight, _ in self._kinds.values()])
        if words := self._kinds[kind][1]():
            self.count[kind] = self.count.get(kind, 0) + 1
            said.append(words)
        return said

    def calm(self) -> list[str]:
        """Mend everything now."""
        return self._mend(float("inf"))

    def _weights(self) -> dict[str, tuple[int, Callable[[], str | None]]]:
        kinds: dict[str, tuple[int, Callable[[], str | None]]] = {
            "kill a worker": (4, lambda: self._kill(WORKERS)),
            "kill a child": (4, self._kill_child),
            "freeze a worker": (3, lambda: self._freeze(WORKERS)),
            "deploy a worker": (2, self._deploy),
            "kill a beat": (3, lambda: self._kill(BEATS)),
            "freeze a beat": (2, lambda: self._freeze(BEATS)),
            "cut all sessions": (2, self._cut),
            "restart PostgreSQL": (1, lambda: self._restart("postgres")),
        }
        if "rabbitmq" in self._services.running:
            kinds |= {
                "restart RabbitMQ": (1, lambda: self._restart("rabbitmq")),
                "stall RabbitMQ": (1, lambda: self._stall("rabbitmq")),
                "restart Redis": (1, lambda: self._restart("redis")),
                "stall Redis": (1, lambda: self._stall("redis")),
            }
        return kinds

    def _mend(self, now: float) -> list[str]:
        due = [each for each in self._mends if each[0] <= now]
        self._mends = [each for each in self._mends if each[0] > now]
        for _, _, mend in due:
            mend()
        return [words for _, words, _ in due]

    def _later(self, seconds: tuple[float, float], words: str, mend: Callable[[], object]) -> None:
        self._mends.append((time.monotonic() + self._random.uniform(*seconds), words, mend))

    def _whole(self, names: tuple[str, ...]) -> str | None:
        """One of these programs that is neither dead nor frozen."""
        broken = " ".join(words for _, words, _ in self._mends)
        whole = [name for name in names if name not in broken and self._stack.programs[name].running]
        chosen = self._random.choice(names)
        return chosen if chosen in whole else None

    def _kill(self, names: tuple[str, ...]) -> str | None:
        if (name := self._whole(names)) is None:
            return None
        self._stack.kill(name)
        self._later(BACK, f"{name} starts again", lambda: self._again(name))
        return f"SIGKILL to {name} and its children"

    def _kill_child(self) -> str | None:
        name = self._whole(WORKERS)
        children = psutil.Process(self._stack.programs[name].pid).children() if name else []
        if not children:
            return None
        self._random.choice(children).kill()
        return f"SIGKILL to a child of {name}"

    def _freeze(self, names: tuple[str, ...]) -> str | None:
        if (name := self._whole(names)) is None:
            return None
        pid = self._stack.programs[name].pid
        assert pid is not None
        signal_group(pid, signal.SIGSTOP)
        self._later(FROZEN, f"{name} goes on", lambda: signal_group(pid, signal.SIGCONT))
        return f"SIGSTOP to {name} and its children"

    def _deploy(self) -> str | None:
        if (name := self._whole(WORKERS)) is None:
            return None
        self._stack.programs[name].signal(signal.SIGTERM)
        self._later((8.0, 12.0), f"{name} starts again", lambda: self._again(name))
        return f"SIGTERM to {name}"

    def _again(self, name: str) -> None:
        self._stack.programs[name].stop()
        if name in BEATS:
            self._stack.beat(name)
        else:
            self._stack.worker(name, CONCURRENCY)

    def _cut(self) -> str:
        with psycopg.connect(self._stack.env["DATABASE_URL"], autocommit=True) as database:
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        return "every session of the database is cut"

    def _restart(self, key: str) -> str:
        service = self._service(key)
        service.restart()
        return f"{service.name} was restarted"

    def _stall(self, key: str) -> str | None:
        service = self._service(key)
        if any(service.name in words for _, words, _ in self._mends):
            return None
        service.signal(signal.SIGSTOP)
        self._later((1.0, 4.0), f"{service.name} goes on", lambda: service.signal(signal.SIGCONT))
        return f"SIGSTOP to {service.name}"

    def _service(self, key: str) -> NativeService:
        service = self._services.running[key]
        assert isinstance(service, NativeService), f"{service.name} is not ours to break"
        return service
