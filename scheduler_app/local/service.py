"""One service as its users see it: a name, a URL, where it came from, and how to stop it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from scheduler_app.local.processes import Process, wait_for

READY_WITHIN = 60.0


class CannotHave(Exception):
    """A service cannot be had here; `mend` is the command that would change that."""

    def __init__(self, name: str, reason: str, mend: str) -> None:
        self.name, self.reason, self.mend = name, reason, mend
        super().__init__(f"{name}: {reason}. To mend it: {mend}")


class StartFailed(Exception):
    """A service was found but did not come up; the message ends with the last lines of its log."""


@dataclass
class Service:
    """A service that someone else runs: used, never started, never stopped."""

    name: str
    url: str = field(repr=False)
    origin: str

    def start(self) -> None:
        """Begin starting it; `wait_ready` tells when it serves."""

    def wait_ready(self) -> None:
        """Return when it serves; raises StartFailed."""

    def stop(self) -> None:
        """Stop it and everything that belongs to it; safe to call twice."""


@dataclass
class NativeService(Service):
    """A private server made of child processes, the last of which answers under `url`."""

    processes: Sequence[Process]
    ready: Callable[[], bool]

    @property
    def pid(self) -> int | None:
        """The server's process id, or None while it is stopped."""
        return self.processes[-1].pid

    def start(self) -> None:
        for process in self.processes:
            process.start()

    def wait_ready(self) -> None:
        server = self.processes[-1]
        wait_for(lambda: not server.running or self.ready(), READY_WITHIN)
        if not server.running or not self.ready():
            raise StartFailed(f"{self.name} ({self.origin}) did not come up:\n{server.tail()}")

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.stop()

    def restart(self) -> None:
        """Stop it and start it again on the same port with the same data."""
        self.stop()
        self.start()
        self.wait_ready()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server alone, e.g. SIGSTOP to let it stall."""
        self.processes[-1].signal(number)
