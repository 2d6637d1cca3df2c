"""A private RabbitMQ node: own Erlang cookie, own epmd, own ports, own folders, own user.

`epmd` is started by us on a port of its own, so that it is not the daemon that Erlang would otherwise leave behind,
and so that no node of anybody else is seen or told of ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from scheduler_app.local.ports import LOOPBACK, free_ports
from scheduler_app.local.processes import Launch, Process
from scheduler_app.local.secret import password, private_file
from scheduler_app.local.service import NativeService

MEND = "apt-get install rabbitmq-server (macOS: brew install rabbitmq), or set BROKER_URL"
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = 1  # the first byte of Connection.Start, AMQP 0-9-1 section 4.2.3

VHOSTS = ("/", "gw0", "gw1")


@dataclass(frozen=True)
class Binaries:
    """`rabbitmq-server` and `epmd`, and where they came from."""

    server: Path
    epmd: Path
    origin: str


def on_machine() -> Binaries | None:
    """The server's own script (Debian's /usr/sbin wrapper insists on a user of its own), and Erlang's epmd."""
    epmd = shutil.which("epmd") or next((str(p) for p in Path("/usr/lib/erlang").glob("erts-*/bin/epmd")), None)
    places = [
        Path("/usr/lib/rabbitmq/bin/rabbitmq-server"),
        *sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"), reverse=True),
    ]
    if found := shutil.which("rabbitmq-server"):
        places.append(Path(found).resolve())
    server = next((place for place in places if os.access(place, os.X_OK)), None)
    if server is None or epmd is None:
        return None
    return Binaries(server, Path(epmd), f"RabbitMQ in {server.parent}")


def prepare(binaries: Binaries, folder: Path) -> NativeService:
    """A node with one user, no plugins, the virtual host `/`, and one for each of the test processes side by side."""
    home = folder / "rabbitmq"
    home.mkdir(mode=0o700)
    secret = password()
    port, distribution, names = free_ports(3)
    env = _env(home, port, distribution, names)
    private_file(home / "rabbitmq.conf", _config(home))
    private_file(home / "definitions.json", _definitions(secret))
    private_file(home / "enabled_plugins", "[].\n")
    private_file(home / "rabbitmq-env.conf", "")
    epmd = Launch(
        "epmd",
        [str(binaries.epmd), "-port", str(names), "-address", LOOPBACK],
        home,
        folder / "epmd.log",
        env,
    )
    server = Launch("rabbitmq", [str(binaries.server)], home, folder / "rabbitmq.log", env, grace=20)
    url = f"amqp://everyslot:{secret}@{LOOPBACK}:{port}//"
    return NativeService("RabbitMQ", url, binaries.origin, [Process(epmd), Process(server)], lambda: answers(port))


def answers(port: int) -> bool:
    """Whether the node speaks AMQP 0-9-1; its listener opens last, when everything else is up."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as connection:
            connection.sendall(PROTOCOL_HEADER)
            return connection.recv(1) == bytes([METHOD_FRAME])
    except OSError:
        return False


def _definitions(secret: str) -> str:
    """The user and the virtual hosts (RabbitMQ manual, "Definitions"; the hash as in "Passwords")."""
    salt = secrets.token_bytes(4)
    hashed = base64.b64encode(salt + hashlib.sha256(salt + secret.encode()).digest()).decode()
    rights = {"user": "everyslot", "configure": ".*", "write": ".*", "read": ".*"}
    return json.dumps(
        {
            "users": [
                {
                    "name": "everyslot",
                    "password_hash": hashed,
                    "hashing_algorithm": "rabbit_password_hashing_sha256",
                    "tags": "administrator",
                }
            ],
            "vhosts": [{"name": name} for name in VHOSTS],
            "permissions": [{"vhost": name, **rights} for name in VHOSTS],
        }
    )


def _config(home: Path) -> str:
    settings: dict[str, object] = {
        "load_definitions": home / "definitions.json",
        "disk_free_limit.absolute": "50MB",
        "log.file.level": "warning",
        "log.console": "false",
    }
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


def _env(home: Path, port: int, distribution: int, names: int) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RABBITMQ_", "ERL_")) and name != "NOTIFY_SOCKET"
    }
    return inherited | {
        "HOME": str(home),  # holds the Erlang cookie
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "RABBITMQ_NODENAME": f"everyslot-{secrets.token_hex(4)}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONF_ENV_FILE": str(home / "rabbitmq-env.conf"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_CONFIG_FILES": str(home / "conf.d"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        # Idle schedulers sleep at once instead of spinning; the distribution port is for this machine only.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"
        ),
    }
