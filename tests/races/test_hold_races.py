"""Runs that wait for another: one key, one run at a time; the end of one and the release of the next are one commit."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any
from uuid import UUID

import pytest
from django.db import Error, transaction

from scheduler_app.lifecycle.claim import write
from scheduler_app.models import JobRun
from scheduler_app.models.ids import new_id
from scheduler_app.store.work import Finish, Wanted
from tests.races.test_claim_races import (
    AGAIN,
    DIED,
    FREE,
    ONE,
    OTHER,
    RETURNED,
    STOPPED,
    _known,
    claim,
    finish,
    one_session,
    running,
    sessions_that_wait,
    start,
)
from tests.support.beats import second_ago
from tests.support.definitions import a_run
from tests.support.programs import wait_until

__all__ = ["_known"]
pytestmark = [pytest.mark.race, pytest.mark.django_db(transaction=True)]


RUNS, WORKERS = 20, 4


def work_until_done(worker: UUID, runs: list[UUID], inside: Counter[str], seen: list[int]) -> int:
    """What a worker's ledger does, over and over: claim what is free, work, finish; how many runs it worked on."""
    worked = 0
    while JobRun.objects.filter(id__in=runs, status__in=["queued", "running"]).exists():
        try:
            got = write(worker, [], [Wanted(run, 0) for run in runs]).claimed
        except Error:  # two took the key at once, or waited in a circle: PostgreSQL lets one go on
            continue
        if not got:
            continue
        inside["running"] += len(got)
        seen.append(inside["running"])
        seen.append(JobRun.objects.filter(status="running", concurrency_key="one").count())
        inside["running"] -= len(got)
        while True:
            try:
                done = write(worker, [Finish(run, 1, worker, RETURNED) for run in got], []).done
                break
            except Error:
                continue
        assert done.keys() == got.keys(), "a run was taken away"
        worked += len(got)
    return worked


def test_runs_with_one_concurrency_key_never_run_at_the_same_time() -> None:
    runs = [a_run(scheduled_for=second_ago(n), concurrency_key="one", **FREE).id for n in range(RUNS)]
    inside: Counter[str] = Counter()
    seen: list[int] = []
    results: dict[int, Any] = {}
    workers = [new_id() for _ in range(WORKERS)]
    threads = [
        start(lambda worker=worker: work_until_done(worker, runs, inside, seen), results, place)  # type: ignore[misc]
        for place, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.join(120)
    assert [each for each in results.values() if isinstance(each, Exception)] == []
    assert sum(results.values()) == RUNS
    assert set(seen) == {1}
    assert Counter(JobRun.objects.values_list("status", "attempts", "held_by")) == {("succeeded", 1, None): RUNS}
    times = sorted(JobRun.objects.values_list("started_at", "finished_at"))
    assert all(one[1] <= other[0] for one, other in combinations(times, 2)), "two overlapped"


def test_the_database_itself_refuses_a_second_run_with_a_key_that_runs() -> None:
    """Whatever a statement would overlook: two claims that cannot see each other."""
    one, other = (a_run(scheduled_for=second_ago(n), concurrency_key="one", **FREE) for n in (1, 2))
    results: dict[int, Any] = {}
    with transaction.atomic():
        assert claim(one, ONE)
        second = start(lambda: claim(other, OTHER), results, 0)
        wait_until(lambda: sessions_that_wait() == 1, what="the second claim to wait for the first")
    second.join(60)
    assert results[0] is False or isinstance(results[0], Error)
    assert JobRun.objects.filter(status="running").count() == 1


def test_the_end_of_a_run_frees_its_held_successor_in_the_same_commit() -> None:
    for number, ending in enumerate((RETURNED, DIED, STOPPED)):
        run = running(scheduled_for=second_ago(10 + number))
        held = a_run(scheduled_for=second_ago(number), held_by=run.id, **FREE)
        results: dict[int, Any] = {}
        with transaction.atomic():
            JobRun.objects.select_for_update().get(pk=held.pk)
            thread = start(lambda run=run, ending=ending: finish(run, ending), results, 0)  # type: ignore[misc]
            wait_until(lambda: sessions_that_wait() == 1, what="the finish to wait for the successor")
            run.refresh_from_db()
            assert run.status == "running", "ended before its successor was free"
        thread.join(60)
        assert results == {0: True}
        held.refresh_from_db()
        run.refresh_from_db()
        assert (run.status, held.held_by) == (ending.status.value, None)
        assert claim(held)


@one_session
def test_a_run_that_will_be_tried_again_keeps_its_successor_waiting() -> None:
    run = running()
    held = a_run(scheduled_for=second_ago(1), held_by=run.id, **FREE)
    assert finish(run, AGAIN)
    held.refresh_from_db()
    assert held.held_by == run.id
    assert not claim(held)


@one_session
def test_a_run_asked_to_cancel_that_would_be_tried_again_ends_and_frees_its_successor() -> None:
    run = running(cancel_requested_at=second_ago())
    held = a_run(scheduled_for=second_ago(1), held_by=run.id, **FREE)
    assert finish(run, AGAIN)
    held.refresh_from_db()
    assert held.held_by is None
