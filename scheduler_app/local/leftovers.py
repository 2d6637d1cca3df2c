"""What still runs below this process, and its end. Linux answers from /proc, other systems through ps(1)."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from scheduler_app.local.processes import LINUX, wait_for

GRACE = 10.0


def end_descendants(grace: float = GRACE) -> list[str]:
    """End everything below this process, kindly for `grace` seconds; returns what was found, as `name (pid)`."""
    found = living()
    _signal_all(found, signal.SIGTERM)
    if not wait_for(lambda: not living(), grace):
        found |= living()
        wait_for(_killed, grace)
    return [f"{name} ({pid})" for pid, name in sorted(found.items())]


def _killed() -> bool:
    left = living()
    _signal_all(left, signal.SIGKILL)
    return not left


def living() -> dict[int, str]:
    """Descendants that still run; those of our own children that have ended are buried on the way."""
    return {pid: name for pid, name in descendants().items() if not _buried(pid)}


def _buried(pid: int) -> bool:
    """Take the exit status of a direct child that has ended."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False


def _signal_all(pids: dict[int, str], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)


def descendants(root: int | None = None) -> dict[int, str]:
    """Living processes below `root` (this process unless given): pid -> program name."""
    table = _proc_table() if LINUX else _ps_table()
    below: dict[int, str] = {}
    frontier = {root or os.getpid()}
    while frontier:
        children = {pid: name for pid, (parent, name) in table.items() if parent in frontier}
        below |= children
        frontier = set(children)
    return below


def _proc_table() -> dict[int, tuple[int, str]]:
    table: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # pid (name) state ppid …: the name may hold spaces and brackets, proc(5)
                head, _, rest = (entry / "stat").read_text(errors="replace").rpartition(")")
                state, parent = rest.split()[:2]
                if state != "Z" or int(parent) == os.getpid():
                    table[int(entry.name)] = (int(parent), head.partition("(")[2])
    return table


def _ps_table() -> dict[int, tuple[int, str]]:
    output = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,comm="], capture_output=True, text=True, check=True, timeout=10
    ).stdout
    rows = [line.split(None, 2) for line in output.splitlines()]
    return {int(pid): (int(parent), name) for pid, parent, name in rows if name != "ps"}
