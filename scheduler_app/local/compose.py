"""A private copy of one service of docker-compose.yml, where a Docker engine answers."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from scheduler_app.local.ports import LOOPBACK, free_ports
from scheduler_app.local.secret import password
from scheduler_app.local.service import Service, StartFailed

FILE = Path(__file__).resolve().parents[2] / "docker-compose.yml"
MINUTES = 60.0
URLS = {
    "postgres": "postgresql://postgres:{secret}@{host}:{port}/postgres",
    "rabbitmq": "amqp://everyslot:{secret}@{host}:{port}//",
    "redis": "redis://:{secret}@{host}:{port}/0",
}


def engine_answers() -> bool:
    """Whether there is a Docker client with compose whose engine we may use, and the compose file."""
    if shutil.which("docker") is None or not FILE.exists():
        return False
    return _succeeds("docker", "info", "--format", "{{.ServerVersion}}") and _succeeds("docker", "compose", "version")


def _succeeds(*argv: str) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@dataclass
class ComposeService(Service):
    """One service under a project name of its own, so that nobody else's containers are touched."""

    key: str
    project: str
    env: dict[str, str]

    def start(self) -> None:
        self._compose("up", "--detach", "--wait", "--wait-timeout", "120", self.key, minutes=10)

    def stop(self) -> None:
        self._compose("down", "--volumes", "--timeout", "10", minutes=2)

    def _compose(self, *arguments: str, minutes: float) -> None:
        argv = ["docker", "compose", "--file", str(FILE), "--project-name", self.project, *arguments]
        result = subprocess.run(
            argv, env=self.env, capture_output=True, text=True, timeout=minutes * MINUTES, check=False
        )
        if result.returncode != 0:
            raise StartFailed(f"{self.name} (Docker) did not come up:\n{result.stderr.strip()}")


def prepare(key: str, name: str) -> ComposeService:
    """`key` is the service's name in docker-compose.yml; it listens on a free loopback port."""
    secret, port = password(), free_ports(1)[0]
    prefix = key.upper()
    env = os.environ | {f"{prefix}_PORT": str(port), f"{prefix}_PASSWORD": secret}
    url = URLS[key].format(secret=secret, host=LOOPBACK, port=port)
    return ComposeService(name, url, "Docker", key, f"everyslot-{secrets.token_hex(4)}", dict(env))
