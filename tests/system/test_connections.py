"""What a task does to its child's database connection, or the server does to it, is no later task's trouble."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from scheduler_app.models import Attempt
from tests.support.programs import Programs
from tests.support.workload import leaving, writing

pytestmark = [
    pytest.mark.system,
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("broker", ["postgres"], indirect=True),
]

LEFT = ["autocommit off", "BEGIN", "atomic entered", "an error in a transaction", "closed"]


def test_no_task_spoils_the_connection_for_the_next_one(run: Programs) -> None:
    run.beat().leads()
    worker = run.worker(concurrency=1).ready()
    for left in LEFT:
        leaving.delay(left).get(timeout=30)
        assert writing.delay(f"after {left}").get(timeout=30) == 1, "at its first attempt"
        assert Group.objects.filter(name=f"after {left}").exists(), "it said so, and its work is there"
    assert worker.alive


def test_sessions_that_the_server_ended_cost_no_attempt(run: Programs, tmp_path: Path) -> None:
    run.beat().leads()
    run.worker(concurrency=1).ready()
    assert writing.delay("before").get(timeout=30) == 1
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    results = [writing.delay(f"after {n}") for n in range(3)]
    assert [each.get(timeout=60) for each in results] == [1, 1, 1], list(
        Attempt.objects.values_list("number", "outcome", "error")
    )
    assert Group.objects.filter(name__startswith="after").count() == 3
