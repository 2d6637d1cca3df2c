"""What `make up` prepares: never a job of ours in a database of somebody else's."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.local import up
from scheduler_app.local.demo.scene import JOBS
from scheduler_app.local.services import Services
from scheduler_app.models import Job
from tests.support.definitions import known_tasks, options

pytestmark = pytest.mark.django_db
AWKWARD = """it's "$HOME" `id` \\ and\ttwo
lines"""


class Stack:
    """The settings are those of the test already."""

    def enter(self) -> None:
        """Nothing is to be set up."""


@pytest.mark.parametrize("ours", [True, False])
def test_jobs_to_look_at_are_made_in_a_new_database_of_ours_only(tmp_path: Path, ours: bool) -> None:
    stack: Any = Stack()
    login = up._prepare(stack, tmp_path, ours)
    assert {job.name for job in Job.objects.all()} == ({each["name"] for each in JOBS} if ours else set())
    assert login == f"user admin, password {(tmp_path / 'admin-password').read_text()}"


def test_who_has_changed_the_password_keeps_it_and_is_not_shown_another(tmp_path: Path, django_user_model: Any) -> None:
    django_user_model.objects.create_superuser("admin", "", "my own")
    stack: Any = Stack()
    assert up._prepare(stack, tmp_path, False) == "user admin, password as you have set it"
    assert django_user_model.objects.get().check_password("my own")


def anything(**words: Any) -> None:
    """Stands for a task that takes all."""


def test_a_job_of_the_callers_own_code_takes_no_example_away(tmp_path: Path) -> None:
    stack: Any = Stack()
    with known_tasks(options("hello.greet", schedule="@every 5s"), options("tasks.examples.ok", anything)):
        up._prepare(stack, tmp_path, True)
    assert set(Job.objects.values_list("task", flat=True)) == {"hello.greet", "tasks.examples.ok"}


def test_a_shell_is_told_what_the_programs_see_and_nobody_else_is(tmp_path: Path) -> None:
    env = {
        "SECRET_KEY": AWKWARD,
        "EVERYSLOT_TASK_MODULES": "tasks,hello",
        "HOME": "/nowhere",
        "REDIS_URL_FILE": "/run/r",
    }
    with up.for_a_shell(env, tmp_path / "env") as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        script = f". {path} && python -c 'import os, sys; print(repr((dict(os.environ), sys.prefix)))'"
        said = subprocess.run(["sh", "-c", script], env={"PATH": os.environ["PATH"]}, capture_output=True, check=True)
        seen, prefix = ast.literal_eval(said.stdout.decode())
        assert {name: seen.get(name) for name in env} == env | {"HOME": None}
        assert prefix == sys.prefix
    assert not path.exists()


@pytest.mark.parametrize("name", ["SECRET_KEY", "DEBUG"])
@pytest.mark.parametrize("form", ["", "_FILE"])
def test_what_the_caller_has_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str) -> None:
    for each in ("SECRET_KEY", "DEBUG"):
        monkeypatch.delenv(each, raising=False)
        monkeypatch.delenv(f"{each}_FILE", raising=False)
    monkeypatch.setenv(name + form, "given")
    env = up._environment(Services(tmp_path), tmp_path)
    assert env[name + form] == "given"
    assert not (form and name in env)
    assert {"SECRET_KEY", "DEBUG"} - env.keys() == ({name} if form else set())
