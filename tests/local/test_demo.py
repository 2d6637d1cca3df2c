"""`make demo` and `make up` as their users see them: real processes, the exit code, and nothing left afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
import pytest

from scheduler_app.local.up import LIVES
from tests.support.brokers import database_url
from tests.support.programs import ROOT, wait_until

pytestmark = pytest.mark.system

NOBODY_THERE = {"BROKER_URL": "amqp://127.0.0.1:1//", "REDIS_URL": "redis://127.0.0.1:1/0"}  # the demo needs neither
URLS = ("DATABASE_URL", "BROKER_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE")


class Command:
    """One command of scheduler_app.local on services of its own; `folder` is its place for temporary files."""

    def __init__(self, folder: Path, *arguments: str, **given: str) -> None:
        self._log = folder / "log"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.temporary.chmod(0o711)
        env = {name: value for name, value in os.environ.items() if name not in URLS} | given
        env["TMPDIR"] = str(self.temporary)
        with self._log.open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "scheduler_app.local", *arguments],
                cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._family: set[psutil.Process] = set()

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def says(self, pattern: str, seconds: float = 90) -> re.Match[str]:
        """Wait for a line; remembers which processes there were meanwhile."""

        def found() -> bool:
            if self.child.poll() is None:
                self._family |= set(psutil.Process(self.child.pid).children(recursive=True))
            return re.search(pattern, self.log) is not None or self.child.poll() is not None

        wait_until(found, seconds, pattern)
        match = re.search(pattern, self.log)
        assert match, self.log
        return match

    def program(self, name: str) -> psutil.Process:
        """Its worker, beat or web server: the one that it has started itself."""
        self._family |= set(psutil.Process(self.child.pid).children(recursive=True))
        found = [each for each in self._family if each.is_running() and name in each.cmdline()]
        return min(found, key=lambda each: each.create_time())

    def left(self) -> list[psutil.Process]:
        """What it had started and still runs."""
        return [each for each in self._family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

    def end(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            self.child.wait(60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that PostgreSQL's own user may pass through."""
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == os.geteuid():
            each.chmod(each.stat().st_mode | 0o011)
    return tmp_path


@pytest.fixture
def demo(folder: Path) -> Iterator[Command]:
    command = Command(folder, "demo", "--seconds", "15", **NOBODY_THERE)
    yield command
    command.end()


def test_the_demo_keeps_the_promise_and_leaves_nothing(demo: Command) -> None:
    demo.says("SIGKILL to worker-")
    demo.says("SIGKILL to beat-")
    demo.says("The promise", 120)
    assert demo.child.wait(60) == 0, demo.log
    assert "The promise held" in demo.log
    assert demo.left() == []
    assert list(demo.temporary.iterdir()) == []


def test_a_run_taken_from_the_demo_turns_its_verdict_and_its_exit_code(folder: Path) -> None:
    """On a terminal, whose board shows who leads and what each job did."""
    server = database_url()
    before = demos(server)
    demo = Command(folder, "demo", "--seconds", "15", DATABASE_URL=server, FORCE_COLOR="1", COLUMNS="120")
    try:
        demo.says("SIGKILL to beat-")
        (name,) = demos(server) - before
        with psycopg.connect(urlunsplit(urlsplit(server)._replace(path=f"/{name}")), autocommit=True) as database:
            taken = database.execute(TAKE_ONE).fetchone()
        assert taken
        demo.says("The promise", 120)
        assert demo.child.wait(60) == 1, demo.log
    finally:
        demo.end()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", demo.log)
    assert "The promise did not hold." in plain
    assert re.search(rf"BROKEN +One run per slot.*\n.*{re.escape(taken[0].astimezone(UTC).isoformat())}", plain)
    for shown in ("s to go", "leads", "stands by", "killed", "recorded", "heartbeat", "flaky service"):
        assert shown in plain
    assert demos(server) == before
    assert demo.left() == []


TAKE_ONE = """
DELETE FROM scheduler_app_jobrun WHERE id = (
    SELECT r.id FROM scheduler_app_jobrun r JOIN scheduler_app_job j ON j.id = r.job_id
    WHERE j.name = 'heartbeat' AND r.status = 'succeeded' ORDER BY r.id LIMIT 1)
RETURNING scheduled_for
"""


def demos(server: str) -> set[str]:
    with psycopg.connect(server, autocommit=True) as database:
        found = database.execute("SELECT datname FROM pg_database WHERE datname LIKE 'everyslot_demo_%'")
        return {name for (name,) in found}


def test_ctrl_c_in_the_middle_of_the_demo_leaves_nothing(demo: Command) -> None:
    demo.says("succeeded")
    os.killpg(demo.child.pid, signal.SIGINT)  # as a terminal does
    assert demo.child.wait(60) == 128 + signal.SIGINT
    assert "The promise" not in demo.log
    assert demo.left() == []
    assert list(demo.temporary.iterdir()) == []


def test_up_serves_the_admin_until_ctrl_c(folder: Path) -> None:
    up = Command(folder, "up", "--data", str(folder / "kept"))
    try:
        address = up.says(r"http://127\.0\.0\.1:(\d+)/admin/ +user admin, password \S+")
        with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/admin/login/", timeout=20) as page:
            text = page.read().decode()
        sheet = re.search(r'href="(/static/[^"]+\.css)"', text)
        assert sheet
        with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}{sheet[1]}", timeout=20) as css:
            assert css.status == 200
        shell = (folder / "kept" / "env").read_text(encoding="utf-8")
        worker = up.program("worker")
        wait_until(lambda: time.time() - worker.create_time() > LIVES + 1, 30, "the worker to have lived a while")
        worker.kill()
        up.says("worker has ended, and was started again")
        wait_until(lambda: up.program("worker").pid != worker.pid, 30, "another worker")
        os.killpg(up.child.pid, signal.SIGINT)
        assert up.child.wait(60) == 128 + signal.SIGINT
    finally:
        up.end()
    assert not (folder / "kept" / "env").exists()
    assert up.left() == []
    database = re.search(r"export DATABASE_URL=(\S+)", shell)
    assert database
    again = folder / "again"
    again.mkdir()
    second = Command(again, "up", "--data", str(folder / "kept"), DATABASE_URL=database[1])
    try:
        second.says("in another terminal")
        assert (folder / "kept" / "env").read_text(encoding="utf-8") == shell, "a shell that was told goes on"
    finally:
        second.end()
    assert second.left() == []
    assert list(up.temporary.iterdir()) == []


@pytest.mark.proof
def test_the_full_demo_shows_the_dead_letter_that_rabbitmq_carried(folder: Path) -> None:
    demo = Command(folder, "demo", "--stack", "full", "--seconds", "15")
    try:
        demo.says("The promise", 240)
        assert demo.child.wait(60) == 0, demo.log
    finally:
        demo.end()
    assert re.search(r"held +The poison's message went through .*x-death: rejected in queue default", demo.log)
    assert demo.left() == []
    assert list(demo.temporary.iterdir()) == []
