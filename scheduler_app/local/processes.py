"""A child process that is stopped by the id we kept, and that ends when we end.

Each child leads a session of its own, so that a Ctrl-C in the terminal reaches us and not the services. On Linux the
kernel also signals it when the thread that started it is gone (prctl(2), PR_SET_PDEATHSIG): start children from the
main thread. What would break this: a child that forks and leaves its process group, which is why `supervise`
collects orphans.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_prctl = ctypes.CDLL(None, use_errno=True).prctl if LINUX else None
POLL = 0.05


@dataclass(frozen=True)
class Account:
    """The operating system user that a child runs as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Launch:
    """How to start one process. `stop` lists the signals that end it, kindest first; `grace` is seconds for each."""

    name: str
    argv: list[str]
    folder: Path
    log: Path
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    account: Account | None = None
    stop: tuple[signal.Signals, ...] = (signal.SIGTERM,)
    grace: float = 10.0


class Process:
    """One started process."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; raises OSError if the program cannot be executed."""
        launch = self.launch
        with launch.log.open("ab") as log:
            self._popen = subprocess.Popen(
                launch.argv,
                cwd=launch.folder,
                env=dict(launch.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=dies_with_parent(launch.stop[0]),  # noqa: PLW1509 (it only calls the kernel)
                **as_account(launch.account),  # type: ignore[call-overload]
            )

    @property
    def pid(self) -> int | None:
        return self._popen.pid if self._popen else None

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process itself, if it still runs."""
        if self._popen is not None:
            self._popen.send_signal(number)

    def stop(self) -> None:
        """End it and what it started in its group; returns when it is gone. Safe to call twice."""
        if self._popen is None:
            return
        for number in self.launch.stop:
            if self.running:
                self.signal(number)
                self.signal(signal.SIGCONT)
                self._wait(self.launch.grace)
        signal_group(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        self._popen = None

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        text = self.launch.log.read_text(encoding="utf-8", errors="replace") if self.launch.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _wait(self, seconds: float) -> None:
        if self._popen is not None:
            try:
                self._popen.wait(seconds)
            except subprocess.TimeoutExpired:
                return


def as_account(account: Account | None) -> dict[str, object]:
    """Popen's arguments that start a child as this user."""
    return {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}


def dies_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """A function to run in the child just before exec: the kernel sends `number` when its parent dies (Linux)."""
    if _prctl is None:
        return None
    prctl, parent = _prctl, os.getpid()

    def bind() -> None:
        prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it died before the line above took effect
            os.kill(os.getpid(), number)

    return bind


def adopt_orphans() -> None:
    """Make every descendant whose own parent ends a child of this process (Linux; elsewhere nothing happens)."""
    if _prctl is not None:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)


def signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # nobody is left; macOS answers EPERM when only zombies are


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; False if it did not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True
