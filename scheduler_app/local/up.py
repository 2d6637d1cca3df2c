"""`make up`: web, beat and a worker, kept running until Ctrl-C. The data stay for the next time."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shlex
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from scheduler_app.local.accounts import can_reach, unprivileged
from scheduler_app.local.ports import LOOPBACK, free_ports, is_free
from scheduler_app.local.processes import wait_for
from scheduler_app.local.secret import password, private_file
from scheduler_app.local.service import StartFailed
from scheduler_app.local.services import KINDS, Services
from scheduler_app.local.stack import ROOT, Stack

PORT: Final = 8000
USER: Final = "admin"
START: Final = 60.0
LOOK: Final = 0.5
LIVES: Final = 10.0  # seconds
INSIDE = ROOT / ".local"
OURS = {*(kind.variable for kind in KINDS.values()), "ALLOWED_HOSTS", "DEBUG", "DJANGO_SETTINGS_MODULE", "SECRET_KEY"}


def run_up(folder: Path, arguments: Sequence[str]) -> int:
    """Keep web, beat and a worker running until Ctrl-C, on the same data every time."""
    options = _options(arguments)
    kept: Path = options.data
    kept.mkdir(exist_ok=True)
    _forget_our_own(kept / "url")
    with Services(folder) as services:
        wanted = ["postgres", *(key for key in ("rabbitmq", "redis") if _is_given(KINDS[key].variable))]
        services.start(wanted, data=_data_folder(kept))
        for service in services.running.values():
            print(f"{service.name}: {service.origin}", flush=True)
        if not _is_given(KINDS["postgres"].variable):
            private_file(kept / "url", services.running["postgres"].url)
        env = _environment(services, kept)
        with for_a_shell(env, kept / "env") as shell, Stack(folder, env) as stack:
            return _keep_up(stack, kept, options.port, shell, ours=not _is_given(KINDS["postgres"].variable))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make up", description=run_up.__doc__)
    parser.add_argument("--port", type=int, help=f"of the web server (default: {PORT}, or a free one if it is taken)")
    parser.add_argument("--data", type=Path, default=INSIDE, help="the folder that keeps everything (default: .local)")
    options = parser.parse_args(arguments)
    if options.port is None:
        options.port = PORT if is_free(PORT) else free_ports(1)[0]
    elif not is_free(options.port):
        parser.error(f"port {options.port} is taken, or is no port")
    return options


def _forget_our_own(url: Path) -> None:
    """A shell that was told what ran the last time gives us our own database's URL: we are to start that one."""
    variable = KINDS["postgres"].variable
    if url.exists() and os.environ.get(variable) == url.read_text(encoding="utf-8"):
        del os.environ[variable]


def _is_given(variable: str) -> bool:
    return bool(os.environ.get(variable) or os.environ.get(f"{variable}_FILE"))


def _data_folder(kept: Path) -> Path:
    """In `kept`, or, where PostgreSQL's user cannot go there (a clone in /root), below the temporary files.

    `make clean` finds the second one through `.local/data-folder`.
    """
    inside = kept / "postgres"
    if can_reach(inside, unprivileged()):
        return inside
    name = hashlib.sha256(str(kept.resolve()).encode()).hexdigest()[:12]
    outside = Path("/var/tmp" if Path("/var/tmp").is_dir() else tempfile.gettempdir()) / f"everyslot-{name}"
    if outside.exists() and outside.stat().st_uid not in (os.geteuid(), getattr(unprivileged(), "uid", -1)):
        raise StartFailed(f"{outside} belongs to somebody else; set DATABASE_URL, or clone into another folder")
    (kept / "data-folder").write_text(str(outside), encoding="utf-8")
    return outside


def _environment(services: Services, kept: Path) -> dict[str, str]:
    """Settings for one machine; what the caller has set of ours stays."""
    env = services.environment()
    ours = {
        "SECRET_KEY": _kept(kept / "secret-key"),
        "DEBUG": "true",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "EVERYSLOT_MEDIA_ROOT": str(kept / "media"),
    }
    return env | {name: value for name, value in ours.items() if not _is_given(name)}


def _kept(path: Path) -> str:
    """A secret made once and kept, readable by its owner only."""
    if not path.exists():
        private_file(path, password())
    return path.read_text(encoding="utf-8").strip()


@contextmanager
def for_a_shell(env: Mapping[str, str], path: Path) -> Iterator[Path]:
    """A file for `.` of a shell, as long as this lasts: `python manage.py` there means what the programs here see."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(env.items()) if _is_ours(name)]
    lines.append(f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"')
    try:
        yield private_file(path, "\n".join([*lines, ""]))
    finally:
        path.unlink(missing_ok=True)


def _is_ours(variable: str) -> bool:
    return variable.startswith("EVERYSLOT_") or variable.removesuffix("_FILE") in OURS


def _keep_up(stack: Stack, kept: Path, port: int, shell: Path, *, ours: bool) -> int:
    login = _prepare(stack, kept, ours)
    programs = Programs(stack, port)
    programs.start()
    if not wait_for(lambda: bool(stack.ended()) or _serves(port), START):
        raise StartFailed(f"the web server did not answer within {START:.0f} s:\n{stack.programs['web'].tail()}")
    if not stack.ended():
        print(f"\n  http://{LOOPBACK}:{port}/admin/   {login}", flush=True)
        print(f"  in another terminal:  . {shlex.quote(_short(shell))} && python manage.py jobs list", flush=True)
        print(f"  logs: {stack.logs}\n  Ctrl-C stops it", flush=True)
    while True:
        threading.Event().wait(LOOK)
        for name, tail in stack.ended().items():
            if not programs.revive(name):
                print(f"{name} has ended:\n{tail}", flush=True)
                return 1
            print(f"  {name} has ended, and was started again", flush=True)


class Programs:
    """Web, beat and worker of a stack; one that ends is started again, as a service manager would."""

    def __init__(self, stack: Stack, port: int) -> None:
        self._stack = stack
        self._begin: dict[str, Callable[[], object]] = {
            "web": lambda: stack.web(port),
            "beat": lambda: stack.beat("beat"),
            "worker": lambda: stack.worker("worker"),
        }
        self._since: dict[str, float] = {}

    def start(self) -> None:
        for name in self._begin:
            self._start(name)

    def revive(self, name: str) -> bool:
        """Start it again; not if it has only just been started, since it would only end again."""
        if time.monotonic() - self._since[name] < LIVES:
            return False
        self._stack.programs[name].stop()  # what it has left behind
        self._start(name)
        return True

    def _start(self, name: str) -> None:
        self._begin[name]()
        self._since[name] = time.monotonic()


def _short(path: Path) -> str:
    """As one types it in the project's folder; with a slash, since a shell seeks a bare name in its PATH."""
    full = path.resolve()
    return f"./{full.relative_to(ROOT)}" if full.is_relative_to(ROOT) else str(full)


def _prepare(stack: Stack, kept: Path, ours: bool) -> str:
    """Migrations, the jobs that the code declares, somebody to sign in; in a new database of ours, jobs to look at."""
    stack.enter()
    from django.core.management import call_command

    from scheduler_app.lifecycle import catalog
    from scheduler_app.lifecycle.loading import import_tasks
    from scheduler_app.local.demo.scene import JOBS, define_jobs
    from scheduler_app.models import Job

    call_command("migrate", verbosity=0)
    new = ours and not Job.objects.exists()
    import_tasks()
    call_command("jobs", "sync", stdout=io.StringIO())
    if new:
        define_jobs(job for job in JOBS if catalog.find(job["task"]))
    return _login(_kept(kept / "admin-password"))


def _login(secret: str) -> str:
    """The user and the password to type; whoever has changed the password keeps it."""
    from django.contrib.auth import get_user_model

    users = get_user_model()._default_manager
    user = users.filter(username=USER).first()
    if user is None:
        user = users.create_superuser(USER, "", secret)
    return f"user {USER}, password {secret if user.check_password(secret) else 'as you have set it'}"


def _serves(port: int) -> bool:
    """Whether the sign-in page comes."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/admin/login/", timeout=5) as page:
            return page.status == 200
    except OSError:
        return False
