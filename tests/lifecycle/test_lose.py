"""What the death of a worker costs its runs."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from scheduler_app.core.limits import ATTEMPTS_MOST, WORKER_LOSSES_FREE
from scheduler_app.core.outcome import Way, settle
from scheduler_app.core.retry import RetryOverrides, resolve
from scheduler_app.lifecycle import lose
from scheduler_app.lifecycle.claim import write
from scheduler_app.lifecycle.lose import lose_worker
from scheduler_app.lifecycle.record import record
from scheduler_app.lifecycle.redrive import redrive
from scheduler_app.lifecycle.rules import RULES, Rule
from scheduler_app.models import Attempt, DeadLetter, Job, JobRun, Worker
from scheduler_app.store.work import Finish, Running, Wanted
from tests.support.beats import second_ago
from tests.support.definitions import a_job, a_run, known_tasks, options, set_cursor

pytestmark = pytest.mark.django_db


def dies_with_its_worker(run: JobRun) -> JobRun:
    """A worker claims the run and is declared dead."""
    worker = Worker.objects.create(name="w", lease=30.0, lock_key=77).id
    JobRun.objects.filter(pk=run.pk).update(run_after=run.created_at)
    run.refresh_from_db()
    assert run.pk in write(worker, [], [Wanted(run.pk, run.attempts)]).claimed
    assert lose_worker(worker, "lease_expired") == 1
    run.refresh_from_db()
    return run


def test_the_first_three_workers_that_die_cost_a_run_nothing_and_the_later_ones_end_it() -> None:
    run = a_run(max_attempts=2)
    left = []
    while run.status == "queued":
        dies_with_its_worker(run)
        left.append(run.max_attempts - run.attempts)
    assert left == [2] * WORKER_LOSSES_FREE + [1, 0]
    assert (run.status, run.reason) == ("dead", "lost")
    numbers = range(1, WORKER_LOSSES_FREE + 3)
    assert list(Attempt.objects.values_list("number", "outcome")) == [(number, "worker_lost") for number in numbers]
    assert DeadLetter.objects.get().reason == "lost"


def test_a_run_whose_worker_died_is_ready_at_once() -> None:
    run = dies_with_its_worker(a_run())
    assert run.run_after <= Attempt.objects.get().finished_at


def test_a_row_that_postgres_refuses_does_not_keep_its_neighbours_under_a_dead_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever makes it refuse: here more attempts than a parameter holds."""
    worker = Worker.objects.create(name="w", lease=30.0, lock_key=77).id
    runs = [a_run(status="running", locked_by=worker) for _ in range(3)]
    finish = lose._finish

    def spoilt(of: UUID, running: Running, reason: str, way: Way) -> Finish:
        made = finish(of, running, reason, way)
        bad = running.run_id == runs[1].pk
        return replace(made, ending=replace(made.ending, extra_attempts=2**31)) if bad else made

    monkeypatch.setattr(lose, "_finish", spoilt)
    assert lose_worker(worker, "lease_expired") == 2
    assert [JobRun.objects.get(pk=run.pk).status for run in runs] == ["queued", "running", "queued"]


def at_its_most(rule: Rule) -> int | None:
    """The largest number that the rule lets through, if it is one of numbers."""
    if rule(1) is not None or rule("text") is None or rule(True) is None:
        return None
    low, high = 1, 2**70
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if rule(middle) is None else (low, middle - 1)
    return low


def test_a_job_with_every_number_at_its_most_lives_through_everything() -> None:
    """What is accepted where it is entered can be reckoned with wherever it is used."""
    most = {name: value for name, rule in RULES.items() if (value := at_its_most(rule)) is not None}
    assert {"max_attempts", "time_limit", "jitter", "retry_backoff", "misfire_grace", "max_runs"} <= most.keys()
    with known_tasks(options()):
        job = a_job(schedule="@every 1s", **most)
        set_cursor(job, second_ago(30))
        recorded = record(None)
        assert recorded is not None
        assert (recorded.quarantined, JobRun.objects.filter(status="queued").count() > 0) == (0, True)
        run = JobRun.objects.filter(status="queued")[0]
        for _ in range(WORKER_LOSSES_FREE + 1):
            dies_with_its_worker(run)
            assert run.status == "queued"
        worker = Worker.objects.create(name="w", lease=30.0, lock_key=77).id
        policy = resolve(RetryOverrides(job.max_attempts, job.retry_backoff, job.retry_backoff_max, False))
        for way in (Way.RETRY, Way.REQUEUED, Way.FAILED):
            JobRun.objects.filter(pk=run.pk).update(run_after=run.created_at)
            assert write(worker, [], [Wanted(run.pk, run.attempts)]).claimed
            run.refresh_from_db()
            ending = settle(
                way, attempt=run.attempts, max_attempts=run.max_attempts, policy=policy, uniform=lambda _, most: most
            )
            assert write(worker, [Finish(run.pk, run.attempts, worker, ending)], []).done
            run.refresh_from_db()
        assert run.status == "dead"
        assert redrive([run.pk], "ann", more=ATTEMPTS_MOST) == [run.pk]
        JobRun.objects.filter(pk=run.pk).update(
            status="dead", reason="failed", max_attempts=2**31 - 1, finished_at=run.created_at
        )
        assert redrive([run.pk], "ann", more=ATTEMPTS_MOST) == [run.pk]
        assert redrive([cancelled_of(job).pk], "ann")


def cancelled_of(job: Job) -> JobRun:
    return a_run(job, status="cancelled", attempts=2**31 - 2, max_attempts=2**31 - 1)
