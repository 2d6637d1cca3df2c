"""A PostgreSQL server of a test's own, and fresh databases on any server."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from scheduler_app.transport import schema


def _binaries() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return installed[-1].parent if installed else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PrivateServer:
    """Starts in a folder of its own on a free port; can be restarted under its clients."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._binaries = binaries
        self._user = "postgres" if os.geteuid() == 0 else None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        if self._user:
            os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, -1)
        self._run("initdb", "-A", "trust", "-U", "postgres", "-D", str(self._folder / "data"))

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder} -c fsync=off"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-w", "-D", str(self._folder / "data"), "-o", options, "-l", log, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-w", "-D", str(self._folder / "data"), "-m", mode, "stop")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._binaries / program), *arguments],
            check=True,
            user=self._user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@contextmanager
def private_server() -> Iterator[PrivateServer | None]:
    """A running server that ends with the block; None where PostgreSQL's programs are not installed."""
    binaries = _binaries()
    if binaries is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="transport-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        server = PrivateServer(Path(folder), binaries)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


@contextmanager
def fresh_database(server_url: str, *, tables: bool = True) -> Iterator[str]:
    """The address of a new database with the transport's tables (or without); dropped at the end."""
    name = f"transport_{uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
    url = urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    try:
        with psycopg.connect(url, autocommit=True) as database:
            for statement in schema.CREATE if tables else ():
                database.execute(statement)
        yield url
    finally:
        with psycopg.connect(server_url, autocommit=True) as admin:
            admin.execute(
                psycopg.sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(psycopg.sql.Identifier(name))
            )
