"""What the death of a worker costs its runs."""

from __future__ import annotations

import pytest

from scheduler_app.core.limits import WORKER_LOSSES_FREE
from scheduler_app.lifecycle.claim import write
from scheduler_app.lifecycle.lose import lose_worker
from scheduler_app.models import Attempt, DeadLetter, JobRun, Worker
from scheduler_app.store.work import Wanted
from tests.support.definitions import a_run

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
