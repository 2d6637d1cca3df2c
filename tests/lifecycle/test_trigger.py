"""Starting a run of a job by hand."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from django.db import connection

from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.lifecycle import define
from scheduler_app.lifecycle.trigger import run_now
from scheduler_app.models import Job, JobRun
from scheduler_app.store.define import database_now
from tests.support.definitions import a_job, a_run, greet, known_tasks, options

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options(), options("tests.greet", greet)):
        yield


def test_a_hand_started_run_is_its_own_and_takes_no_slot() -> None:
    job = a_job(payload={"rows": 3}, queue="fast", priority=7, time_limit=60, max_attempts=2)
    run = JobRun.objects.get(pk=run_now(job, "ann"))
    assert (run.job_id, run.trigger, run.triggered_by, run.payload) == (job.pk, "manual", "ann", {"rows": 3})
    assert (run.queue, run.priority, run.time_limit, run.max_attempts) == ("fast", 7, 60, 2)
    assert run.job_version == job.version
    assert run.scheduled_for <= database_now()
    assert Job.objects.get(pk=job.pk).next_run_at == job.next_run_at


def test_two_starts_in_a_row_are_two_runs() -> None:
    job = a_job()
    assert run_now(job, "ann") != run_now(job, "ann")


def test_other_arguments_may_be_given_and_are_judged_like_the_jobs_own() -> None:
    job = a_job()
    assert JobRun.objects.get(pk=run_now(job, "ann", {"rows": 1})).payload == {"rows": 1}
    with pytest.raises(InvalidDefinition, match="payload: does not fit"):
        run_now(job, "ann", {"year": 1})
    with pytest.raises(InvalidDefinition, match="payload: must be a JSON object"):
        run_now(job, "ann", [1])  # type: ignore[arg-type]


def test_a_paused_or_disabled_job_can_be_started_by_hand() -> None:
    job = define.pause(a_job(enabled=False).pk, "")
    assert JobRun.objects.filter(pk=run_now(job, "ann")).exists()


def test_a_deleted_job_cannot_be_started() -> None:
    for policy in ("allow", "forbid"):
        job = a_job(concurrency_policy=policy)
        define.delete(job.pk)
        with pytest.raises(define.JobMissing):
            run_now(job, "ann")


def test_a_job_whose_task_is_gone_is_refused_by_name() -> None:
    job = a_job(task="tests.greet", payload={"name": "Ann"})
    with known_tasks(options()), pytest.raises(InvalidDefinition, match=r"task: 'tests\.greet'"):
        run_now(job, "ann")


@pytest.mark.parametrize("status", ["queued", "running"])
def test_forbid_refuses_a_start_beside_an_earlier_run_and_names_it(status: str) -> None:
    job = a_job(concurrency_policy="forbid")
    earlier = a_run(job, status=status)
    with pytest.raises(InvalidDefinition, match=f"forbid leaves no room: the run {earlier.id} .* is {status}"):
        run_now(job, "ann")


def test_forbid_allows_a_start_once_the_earlier_run_has_ended() -> None:
    job = a_job(concurrency_policy="forbid")
    a_run(job, status="succeeded")
    assert JobRun.objects.get(pk=run_now(job, "ann")).held_by is None


def test_replace_cancels_what_is_queued_and_waits_for_what_runs() -> None:
    job = a_job(concurrency_policy="replace")
    running, queued = a_run(job, status="running"), a_run(job)
    new = JobRun.objects.get(pk=run_now(job, "ann"))
    running.refresh_from_db()
    queued.refresh_from_db()
    assert new.held_by == running.id
    assert new.dispatched_at is None
    assert running.cancel_requested_at is not None
    assert (queued.status, queued.reason) == ("cancelled", "replaced")


def test_queue_all_waits_for_the_last_in_line() -> None:
    job = a_job(concurrency_policy="queue_all")
    a_run(job, status="running")
    last = a_run(job)
    assert JobRun.objects.get(pk=run_now(job, "ann")).held_by == last.id


@pytest.mark.race
@pytest.mark.django_db(transaction=True)
def test_two_hands_at_once_under_forbid_start_one_run(unpublished: None) -> None:
    job = a_job(concurrency_policy="forbid")

    def start(by: str) -> UUID | str:
        try:
            return run_now(job, by)
        except InvalidDefinition as error:
            return error.field
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(start, "abcd"))
    assert sorted(isinstance(each, UUID) for each in found) == [False, False, False, True]
    assert JobRun.objects.filter(job=job).count() == 1


@pytest.fixture
def unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is published: the rows alone are looked at."""
    monkeypatch.setattr("scheduler_app.lifecycle.enqueue._publish", lambda hints: None)
