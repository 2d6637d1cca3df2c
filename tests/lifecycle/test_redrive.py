"""Sending dead and cancelled runs back."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection

from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.core.retry import RetryOverrides
from scheduler_app.lifecycle.redrive import redrive
from scheduler_app.models import DeadLetter, JobRun
from scheduler_app.store.define import database_now
from tests.support.definitions import a_job, a_run, known_tasks, options

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options(retry=RetryOverrides(max_attempts=3))):
        yield


def test_a_dead_run_goes_back_as_the_same_run_with_further_attempts() -> None:
    run = a_run(
        status="dead", attempts=5, max_attempts=5, dispatched_at=database_now(), dispatches=2, last_error="boom"
    )
    assert redrive([run.id], "ann") == [run.id]
    run.refresh_from_db()
    assert (run.status, run.reason, run.attempts, run.max_attempts) == ("queued", "", 5, 8)
    assert (run.dispatched_at, run.dispatches, run.finished_at, run.locked_by) == (None, 0, None, None)
    assert run.run_after <= database_now()
    assert run.last_error == "boom"


def test_it_gets_as_many_attempts_as_its_job_gives_or_as_told() -> None:
    ours = a_run(a_job(max_attempts=2), status="dead", attempts=5, max_attempts=5)
    told = a_run(status="dead", attempts=5, max_attempts=5)
    redrive([ours.id], "ann")
    redrive([told.id], "ann", more=1)
    assert set(JobRun.objects.values_list("max_attempts", flat=True)) == {7, 6}
    with pytest.raises(InvalidDefinition, match="max_attempts"):
        redrive([told.id], "ann", more=0)


def test_a_cancelled_run_comes_back_without_its_cancel() -> None:
    run = a_run(status="cancelled", cancel_requested_at=database_now(), expires_at=database_now())
    redrive([run.id], "ann")
    run.refresh_from_db()
    assert (run.status, run.cancel_requested_at, run.expires_at) == ("queued", None, None)
    assert run.max_attempts > run.attempts


@pytest.mark.parametrize("status", ["queued", "running", "succeeded", "skipped"])
def test_only_dead_and_cancelled_runs_go_back(status: str) -> None:
    run = a_run(status=status)
    assert redrive([run.id], "ann") == []
    run.refresh_from_db()
    assert run.status == status


def test_its_dead_letters_say_who_sent_it_back() -> None:
    run = a_run(status="dead", attempts=5)
    old = DeadLetter.objects.create(
        run_id=run.id, attempt=4, reason="failed", redriven_at=database_now(), decided_by="bob"
    )
    new = DeadLetter.objects.create(run_id=run.id, attempt=5, reason="failed")
    redrive([run.id], "ann", reason="the data is mended")
    new.refresh_from_db()
    old.refresh_from_db()
    assert (new.decided_by, new.decision_reason, old.decided_by) == ("ann", "the data is mended", "bob")
    assert new.redriven_at is not None


@pytest.mark.parametrize("policy", ["forbid", "replace", "queue_one", "queue_all"])
def test_runs_that_come_back_stand_in_their_jobs_line(policy: str) -> None:
    job = a_job(concurrency_policy=policy)
    first, second = a_run(job, status="dead"), a_run(job, status="dead")
    active = a_run(job, status="running")
    redrive([second.id, first.id], "ann")
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.held_by, second.held_by) == (active.id, first.id)


def test_runs_of_other_jobs_wait_for_nobody() -> None:
    job = a_job()
    a_run(job, status="running")
    dead = a_run(job, status="dead")
    alone = a_run(a_job(name="alone", concurrency_policy="forbid"), status="dead")
    redrive([dead.id, alone.id], "ann")
    assert set(JobRun.objects.filter(status="queued").values_list("held_by", flat=True)) == {None}


def test_many_go_back_in_batches() -> None:
    runs = [a_run(status="dead", attempts=1) for _ in range(30)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scheduler_app.lifecycle.redrive.BATCH", 7)
        assert len(redrive([run.id for run in runs], "ann")) == 30


@pytest.mark.race
@pytest.mark.django_db(transaction=True)
def test_two_people_at_once_send_a_run_back_once() -> None:
    run = a_run(status="dead", attempts=5, max_attempts=5)

    def send(by: str) -> int:
        try:
            return len(redrive([run.id], by))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(send, "abcd")) == 1
    run.refresh_from_db()
    assert run.max_attempts == 8


def test_with_a_rate_each_has_its_own_time() -> None:
    runs = [a_run(status="dead", attempts=1) for _ in range(6)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scheduler_app.lifecycle.redrive.BATCH", 4)
        before = database_now()
        assert len(redrive([run.id for run in runs], "ann", rate=0.5)) == 6
        after = database_now()
    for place, run in enumerate(runs):
        run.refresh_from_db()
        assert before <= run.run_after - timedelta(seconds=2 * place) <= after


@pytest.mark.parametrize("rate", [0, -1, float("nan"), 1e-300])
def test_a_rate_that_never_ends_is_refused(rate: float) -> None:
    run = a_run(status="dead", attempts=1)
    with pytest.raises(InvalidDefinition, match="rate"):
        redrive([run.id], "ann", rate=rate)
    run.refresh_from_db()
    assert run.status == "dead"
