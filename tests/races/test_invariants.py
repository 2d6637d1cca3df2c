"""The invariants are no empty words: each is found broken when it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection

from scheduler_app.models import Attempt
from scheduler_app.models.ids import new_id
from scheduler_app.store.define import database_now
from tests.support.beats import due_jobs
from tests.support.definitions import a_run
from tests.support.invariants import broken_invariants, unsettled

pytestmark = pytest.mark.django_db


def an_attempt(run_id: object, number: int) -> None:
    Attempt.objects.create(run_id=run_id, number=number, outcome="retry", started_at=database_now())


def two_runs_for_a_slot() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE scheduler_app_jobrun DROP CONSTRAINT run_one_per_slot")
    (job,), at = due_jobs(1), database_now()
    a_run(job, scheduled_for=at)
    a_run(job, scheduled_for=at)


def a_number_left_out() -> None:
    run = a_run(attempts=2, max_attempts=5)
    an_attempt(run.id, 2)


def an_end_never_written() -> None:
    a_run(attempts=2, max_attempts=5)


def an_end_of_the_running_attempt() -> None:
    run = a_run(status="running")
    an_attempt(run.id, 1)


def an_older_epoch_after_a_newer() -> None:
    now = database_now()
    a_run(recorded_epoch=2, created_at=now - timedelta(seconds=5))
    a_run(recorded_epoch=1, created_at=now)


def a_key_twice_at_once() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX run_one_per_concurrency_key")
    a_run(status="running", concurrency_key="one")
    a_run(status="running", concurrency_key="one")


def a_holder_that_has_ended() -> None:
    a_run(held_by=a_run(status="dead").id)


@pytest.mark.parametrize(
    "breaking",
    [
        two_runs_for_a_slot,
        a_number_left_out,
        an_end_never_written,
        an_end_of_the_running_attempt,
        an_older_epoch_after_a_newer,
        a_key_twice_at_once,
        a_holder_that_has_ended,
    ],
)
def test_a_broken_invariant_is_found(breaking: Callable[[], None]) -> None:
    assert broken_invariants() == []
    breaking()
    assert len(broken_invariants()) == 1


def test_what_is_left_over_is_found() -> None:
    a_run(status="succeeded")
    assert unsettled() == []
    a_run()
    a_run(status="running", locked_by=new_id())
    assert len(unsettled()) == 2
