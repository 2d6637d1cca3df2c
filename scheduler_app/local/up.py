"""`make up`: web, beat and a worker, kept running until Ctrl-C. The data stay for the next time."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import tempfile
import threading
import urllib.request
from collections.abc import Sequence
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
INSIDE = ROOT / ".local"


def run_up(folder: Path, arguments: Sequence[str]) -> int:
    """Keep web, beat and a worker running until Ctrl-C, on the same data every time."""
    options = _options(arguments)
    kept: Path = options.data
    kept.mkdir(exist_ok=True)
    with Services(folder) as services:
        wanted = ["postgres", *(key for key in ("rabbitmq", "redis") if _is_given(KINDS[key].variable))]
        services.start(wanted, data=_data_folder(kept))
        for service in services.running.values():
            print(f"{service.name}: {service.origin}", flush=True)
        with Stack(folder, _environment(services, kept)) as stack:
            return _keep_up(stack, kept, options.port, ours=not _is_given(KINDS["postgres"].variable))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make up", description=run_up.__doc__)
    parser.add_argument("--port", type=int, help=f"of the web server (default: {PORT}, or a free one if it is taken)")
    parser.add_argument("--data", type=Path, default=INSIDE, help="the folder that keeps everything (default: .local)")
    options = parser.parse_args(arguments)
    if options.port is None:
        options.port = PORT if is_free(PORT) else free_ports(1)[0]
    elif not is_free(options.port):
        parser.error(f"port {options.port} is taken")
    return options


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
    env.setdefault("SECRET_KEY", _kept(kept / "secret-key"))
    env.setdefault("DEBUG", "true")
    env.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    env.setdefault("EVERYSLOT_MEDIA_ROOT", str(kept / "media"))
    return env


def _kept(path: Path) -> str:
    """A secret made once and kept, readable by its owner only."""
    if not path.exists():
        private_file(path, password())
    return path.read_text(encoding="utf-8").strip()


def _keep_up(stack: Stack, kept: Path, port: int, *, ours: bool) -> int:
    login = _prepare(stack, kept, ours)
    stack.web(port)
    stack.beat("beat")
    stack.worker("worker")
    if not wait_for(lambda: bool(stack.ended()) or _serves(port), START):
        raise StartFailed(f"the web server did not answer within {START:.0f} s:\n{stack.programs['web'].tail()}")
    if not stack.ended():
        print(f"\n  http://{LOOPBACK}:{port}/admin/   {login}\n  logs: {stack.logs}\n  Ctrl-C stops it", flush=True)
    while not (ended := stack.ended()):
        threading.Event().wait(LOOK)
    for name, tail in ended.items():
        print(f"{name} has ended:\n{tail}", flush=True)
    return 1


def _prepare(stack: Stack, kept: Path, ours: bool) -> str:
    """Migrations, the jobs that the code declares, somebody to sign in; in a new database of ours, jobs to look at."""
    stack.enter()
    from django.core.management import call_command

    from scheduler_app.lifecycle.loading import import_tasks
    from scheduler_app.local.demo.scene import define_jobs
    from scheduler_app.models import Job

    call_command("migrate", verbosity=0)
    import_tasks()
    call_command("jobs", "sync", stdout=io.StringIO())
    if ours and not Job.objects.exists():
        define_jobs()
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
