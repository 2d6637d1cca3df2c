"""The README's five minutes, step by step, with the README's own text."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler_app.models import Job, JobRun
from tests.support.brokers import database_url
from tests.support.programs import ROOT, Programs, wait_until

pytestmark = [
    pytest.mark.system,
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("broker", ["postgres"], indirect=True),
]

README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]


def python(text: str) -> str:
    """The README's block of Python that holds this text."""
    (found,) = (block for block in PYTHON if text in block)
    return found


def modules() -> str:
    """What the README's `make up` tells of the caller's tasks."""
    (found,) = {value for line in SHELL for value in re.findall(r"EVERYSLOT_TASK_MODULES=(\S+)", line)}
    return found


def commands(verb: str) -> list[list[str]]:
    """The README's commands of this verb, as arguments of Python."""
    lines = [line for line in SHELL if f"manage.py jobs {verb}" in line]
    assert lines, f"the README has no `jobs {verb}`"
    return [["manage.py", *shlex.split(line.partition("manage.py ")[2])] for line in lines]


def test_the_five_minutes_do_what_they_say(run: Programs, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(python("def greet"), encoding="utf-8")
    env = {"EVERYSLOT_TASK_MODULES": modules(), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    env["DJANGO_SETTINGS_MODULE"] = "config.settings"
    said = os.environ | env | {"DATABASE_URL": database_url(), "DEBUG": "true"}
    said.pop("BROKER_URL", None)
    said.pop("REDIS_URL", None)

    def manage(*arguments: str, given: str = "") -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=said, input=given, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def all_of(verb: str) -> str:
        return "".join(manage(*line) for line in commands(verb))

    assert "hello.greet" in all_of("sync")
    assert "@every 5s" in all_of("show")
    assert "09:00" in all_of("next")
    run.beat(**env).leads()
    run.worker(**env).ready()
    wait_until(
        lambda: JobRun.objects.filter(status="succeeded", job__name="hello.greet").exists(), what="the first run"
    )
    assert "succeeded" in all_of("runs")
    assert "succeeded" in all_of("run")
    assert "Hello Ann, attempt 1" in manage("manage.py", "shell", given=python("greet.delay"))
    assert Job.objects.get().origin == "code"
