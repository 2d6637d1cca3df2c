"""What the rows keep of a run's time: when it expires, and when its first attempt began."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from scheduler_app.core.budget import TimeBudget
from scheduler_app.core.limits import WORKER_LOSSES_FREE
from scheduler_app.core.outcome import Ending, Way
from scheduler_app.core.states import Status
from scheduler_app.lifecycle.claim import write
from scheduler_app.lifecycle.enqueue import enqueue
from scheduler_app.lifecycle.lose import lose_worker
from scheduler_app.lifecycle.redrive import redrive
from scheduler_app.lifecycle.trigger import run_now
from scheduler_app.models import JobRun, Worker
from scheduler_app.store.define import database_now
from scheduler_app.store.work import Finish, Wanted
from scheduler_app.worker.task import durable_task
from tests.support.definitions import a_job, a_run, known_tasks, options

pytestmark = pytest.mark.django_db
MILLISECOND = timedelta(milliseconds=1)
GIVEN_BACK = Ending(Way.GIVEN_BACK, Status.QUEUED, extra_attempts=1)
FAILED = Ending(Way.RETRY, Status.QUEUED, error="boom")


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    with known_tasks(options(starting_deadline=30, budget=TimeBudget(retry_for=60))):
        yield


def made(**given: Any) -> JobRun:
    return JobRun.objects.get(pk=enqueue("tests.report", [], {}, **given))


@pytest.mark.parametrize("countdown", [0, 3600])
def test_a_run_expires_its_tasks_starting_deadline_after_its_time(countdown: int) -> None:
    run = made(countdown=countdown)
    assert run.expires_at is not None
    assert abs(run.expires_at - run.run_after - timedelta(seconds=30)) < MILLISECOND


def test_the_call_says_better_when_it_expires() -> None:
    at = database_now() + timedelta(hours=2)
    assert made(expires_at=at).expires_at == at


@pytest.mark.parametrize(("declared", "seconds"), [({}, 30), ({"starting_deadline": 300}, 300)])
def test_a_job_takes_the_deadline_of_its_task_unless_it_has_one_and_keeps_it_by_hand(
    declared: dict[str, int], seconds: int
) -> None:
    job = a_job(**declared)
    assert job.starting_deadline == seconds
    run = JobRun.objects.get(pk=run_now(job, "ann"))
    assert run.expires_at is not None
    assert abs(run.expires_at - run.run_after - timedelta(seconds=seconds)) < MILLISECOND


def test_what_waited_too_long_is_skipped_and_what_waits_for_its_retry_is_not() -> None:
    past = database_now() - timedelta(seconds=1)
    late, begun = a_run(expires_at=past, trigger="code"), a_run(expires_at=past, attempts=1, trigger="code")
    claimed(late)
    claimed(begun)
    assert (late.status, late.reason) == ("skipped", "expired")
    assert begun.status == "running"


def claimed(run: JobRun) -> JobRun:
    """Let a worker claim it, due or not."""
    JobRun.objects.filter(pk=run.pk).update(run_after=run.created_at)
    run.refresh_from_db()
    write(worker(), [], [Wanted(run.pk, run.attempts)])
    run.refresh_from_db()
    return run


def worker() -> Any:
    known = Worker.objects.first() or Worker.objects.create(name="w", lease=30.0, lock_key=77)
    return known.id


def ended(run: JobRun, ending: Ending) -> JobRun:
    write(worker(), [Finish(run.pk, run.attempts, worker(), ending)], [])
    run.refresh_from_db()
    return run


def test_the_begin_of_the_first_attempt_is_kept_until_a_redrive() -> None:
    run = claimed(a_run(trigger="code"))
    first = run.first_started_at
    assert first == run.started_at
    claimed(ended(run, FAILED))
    assert (run.attempts, run.first_started_at) == (2, first)
    ended(run, Ending(Way.FAILED, Status.DEAD, "failed"))
    redrive([run.pk], "ann")
    claimed(run)
    assert first
    assert run.first_started_at == run.started_at
    assert run.first_started_at > first


def test_an_attempt_that_never_started_begins_nothing() -> None:
    run = claimed(a_run(trigger="code"))
    assert ended(run, GIVEN_BACK).first_started_at is None
    first = claimed(run).first_started_at
    assert first == run.started_at
    claimed(ended(run, FAILED))
    assert ended(run, GIVEN_BACK).first_started_at == first


def test_a_claim_tells_how_long_ago_the_first_attempt_began() -> None:
    run = claimed(a_run(trigger="code", attempts=1, first_started_at=database_now() - timedelta(hours=1)))
    ended(run, FAILED)
    JobRun.objects.filter(pk=run.pk).update(run_after=run.created_at)
    written = write(worker(), [], [Wanted(run.pk, run.attempts)])
    assert written.claimed[run.pk].elapsed == pytest.approx(3600, abs=60)


def test_a_run_whose_workers_die_is_not_retried_after_its_time_but_the_free_ones_go_on() -> None:
    run = a_run(trigger="code", max_attempts=50, first_started_at=database_now() - timedelta(hours=1))
    for _ in range(WORKER_LOSSES_FREE):
        claimed(run)
        lose_worker(worker(), "killed")
        run.refresh_from_db()
        assert run.status == "queued"
        Worker.objects.all().delete()
    claimed(run)
    lose_worker(worker(), "killed")
    run.refresh_from_db()
    assert (run.status, run.reason) == ("dead", "out_of_time")


@pytest.mark.parametrize(
    "declared",
    [
        {"starting_deadline": 0},
        {"starting_deadline": 1.5},
        {"starting_deadline": True},
        {"run_timeout": 0},
        {"retry_for": "an hour"},
    ],
)
def test_a_declaration_of_no_time_is_refused_by_name(declared: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(declared))):
        durable_task(**declared)(print)
