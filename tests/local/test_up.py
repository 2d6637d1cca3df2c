"""What `make up` prepares: never a job of ours in a database of somebody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler_app.local import up
from scheduler_app.local.demo.scene import JOBS
from scheduler_app.models import Job

pytestmark = pytest.mark.django_db


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
