"""Find or start PostgreSQL, RabbitMQ and Redis, and stop what was started.

Each is looked for in this order: its URL in the environment; binaries on this machine; a Docker engine; apt-get (only
where the caller allows it, as root); for PostgreSQL the wheel of the extra [local]. Whatever is started is private:
own folder, free loopback ports, own password, stopped by its process id. What was already there is used only through
a URL that was given, and never stopped.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from scheduler_app.local import compose, debian, postgres, rabbitmq, redis
from scheduler_app.local.service import CannotHave, Service, StartFailed

TRIES = 3  # a port may be taken between finding it free and listening on it

Prepare = Callable[[Path], Service]


@dataclass(frozen=True)
class Kind:
    """One kind of service: its variable, its Debian package, and the command that would bring it."""

    name: str
    variable: str
    package: str
    mend: str


KINDS = {
    "postgres": Kind("PostgreSQL", "DATABASE_URL", "postgresql", postgres.MEND),
    "rabbitmq": Kind("RabbitMQ", "BROKER_URL", "rabbitmq-server", rabbitmq.MEND),
    "redis": Kind("Redis", "REDIS_URL", "redis-server", redis.MEND),
}


class Services:
    """The services of one piece of work; a context manager that stops them.

    `folder` is where they live (a private one, removed at the end, unless given); `environ` is where given URLs are
    read (`{}` starts private ones whatever is set); `apt` allows installing packages.
    """

    def __init__(
        self, folder: Path | None = None, *, environ: Mapping[str, str] = os.environ, apt: bool = False
    ) -> None:
        self._own = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="everyslot-"))
        self.folder.chmod(0o711)  # PostgreSQL may run as another user, who has to pass through
        self._environ = environ
        self._apt = apt
        self._started: list[Service] = []
        self.running: dict[str, Service] = {}
        self.missing: list[CannotHave] = []

    def __enter__(self) -> Services:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(
        self,
        wanted: Iterable[str],
        *,
        durable: bool = True,
        data: Path | None = None,
        optional: Iterable[str] = (),
    ) -> None:
        """Start the `wanted` ones (`postgres rabbitmq redis`) and wait until they serve.

        `durable=False` trades safety against power loss for speed; `data` keeps PostgreSQL's data there. What cannot
        be had raises CannotHave, or is noted in `missing` if it is `optional`; raises StartFailed.
        """
        chosen = self._choose(list(wanted), durable, data, set(optional))
        begun = [(key, prepare, self._begin(key, prepare)) for key, prepare in chosen.items()]
        for key, prepare, service in begun:
            self.running[key] = self._settle(key, prepare, service)

    def stop(self) -> None:
        """Stop everything that was started, the last first; goes on after a failure."""
        while self._started:
            service = self._started.pop()
            try:
                service.stop()
            except Exception as error:  # the others must still be stopped
                print(f"{service.name} could not be stopped: {error}", file=sys.stderr)
        self.running.clear()
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """The caller's environment with the URL of each service that runs, and no URL of one that does not."""
        env = dict(os.environ)
        for key, kind in KINDS.items():
            env.pop(kind.variable, None)
            env.pop(f"{kind.variable}_FILE", None)
            if key in self.running:
                env[kind.variable] = self.running[key].url
        return env

    def _choose(self, wanted: list[str], durable: bool, data: Path | None, optional: set[str]) -> dict[str, Prepare]:
        chosen = {key: self._find(key, durable, data) for key in wanted}
        absent = [key for key, prepare in chosen.items() if prepare is None]
        if absent and self._apt and debian.may_install():
            debian.install([KINDS[key].package for key in absent])
            chosen |= {key: self._find(key, durable, data) for key in absent}
        if "postgres" in chosen and chosen["postgres"] is None and (wheel := postgres.from_wheel()):
            chosen["postgres"] = lambda folder: postgres.prepare(wheel, folder, durable=durable, data=data)
        for key in [key for key, prepare in chosen.items() if prepare is None]:
            fault = CannotHave(KINDS[key].name, "not found on this machine", KINDS[key].mend)
            if key not in optional:
                raise fault
            self.missing.append(fault)
        return {key: prepare for key, prepare in chosen.items() if prepare is not None}

    def _find(self, key: str, durable: bool, data: Path | None) -> Prepare | None:
        if url := self._given(KINDS[key].variable):
            service = Service(KINDS[key].name, url, f"{KINDS[key].variable} of the environment")
            _require_answer(key, url)
            return lambda _: service
        if key == "postgres" and (found := postgres.on_machine()):
            return lambda folder: postgres.prepare(found, folder, durable=durable, data=data)
        if key == "rabbitmq" and (node := rabbitmq.on_machine()):
            return lambda folder: rabbitmq.prepare(node, folder)
        if key == "redis" and (server := redis.on_machine()):
            return lambda folder: redis.prepare(server, folder)
        if compose.engine_answers():
            return lambda _: compose.prepare(key, KINDS[key].name)
        return None

    def _given(self, variable: str) -> str:
        if value := self._environ.get(variable):
            return value
        path = self._environ.get(f"{variable}_FILE")
        return Path(path).read_text(encoding="utf-8").strip() if path else ""

    def _begin(self, key: str, prepare: Prepare) -> Service:
        folder = Path(tempfile.mkdtemp(prefix=f"{key}-", dir=self.folder))
        folder.chmod(0o711)
        service = prepare(folder)
        self._started.append(service)
        service.start()
        return service

    def _settle(self, key: str, prepare: Prepare, service: Service) -> Service:
        for _ in range(TRIES - 1):
            try:
                service.wait_ready()
                return service
            except StartFailed:
                service.stop()
                service = self._begin(key, prepare)
        service.wait_ready()
        return service


def _require_answer(key: str, url: str) -> None:
    """A URL that was given must lead somewhere; raises CannotHave with the variable's name."""
    parts = urlsplit(url)
    if parts.hostname is None:
        return
    usual = {"postgres": 5432, "rabbitmq": 5671 if parts.scheme == "amqps" else 5672, "redis": 6379}[key]
    try:
        socket.create_connection((parts.hostname, parts.port or usual), timeout=5).close()
    except OSError as error:
        variable = KINDS[key].variable
        place = f"{parts.hostname}:{parts.port or usual}"
        reason = f"{variable} is set, but nothing answers at {place} ({error})"
        raise CannotHave(KINDS[key].name, reason, f"start it, or unset {variable}") from None
