"""Several recorders at once, on connections of their own: the unique key decides, whatever else is switched off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from scheduler_app.lifecycle import elect
from scheduler_app.lifecycle import record as record_module
from scheduler_app.lifecycle.batch import Batch
from scheduler_app.lifecycle.record import Recorded, record, release_orphans
from scheduler_app.models import Job, JobRun, Term
from scheduler_app.store import jobs as job_store
from scheduler_app.store import term as term_store
from tests.support.beats import due_jobs, lead, second_ago
from tests.support.definitions import a_run, known_tasks, options

pytestmark = [pytest.mark.race, pytest.mark.django_db(transaction=True)]

JOBS, RECORDERS, SLOTS = 200, 6, 3


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    with known_tasks(options()):
        yield


def together(number: int, work: Callable[[], Any]) -> list[Any]:
    """Run `work` in threads that start at once, each with its own connection; results or exceptions."""
    gate = threading.Barrier(number)
    results: list[Any] = []

    def one() -> None:
        try:
            gate.wait(20)
            results.append(work())
        except Exception as error:
            results.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=one) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def without_row_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All recorders read the same jobs: neither lock nor epoch nor row locks keep them apart."""
    statement = job_store._SQL["due_jobs_oldest"]
    bare = replace(statement, sql=statement.sql.replace("FOR NO KEY UPDATE SKIP LOCKED", ""))
    assert bare.sql != statement.sql
    monkeypatch.setattr(job_store, "_SQL", {**job_store._SQL, "due_jobs_oldest": bare})


def six_recorders(start: datetime) -> list[Any]:
    """Each ticks for three slots of every job, with no fence at all."""

    def work() -> int:
        done = 0
        for slot in range(SLOTS):
            while isinstance(found := record(None, now=start + timedelta(seconds=slot), batch=50), Recorded):
                done += found.runs
                if not found.more and not found.locked:
                    break
        return done

    return together(RECORDERS, work)


def assert_one_run_per_slot(results: list[Any]) -> None:
    assert [each for each in results if isinstance(each, Exception)] == []
    runs = list(JobRun.objects.values_list("job_id", "scheduled_for"))
    assert len(set(runs)) == len(runs), "a slot has two runs"
    assert len(runs) == JOBS * SLOTS
    assert sum(results) == len(runs), "a run was counted twice"


def test_six_recorders_without_lock_and_epoch_record_one_run_per_slot() -> None:
    start = second_ago(SLOTS)
    due_jobs(JOBS, start, schedule="@every 1s")
    assert_one_run_per_slot(six_recorders(start))


def test_six_recorders_without_even_row_locks_record_one_run_per_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    without_row_locks(monkeypatch)
    start = second_ago(SLOTS)
    due_jobs(JOBS, start, schedule="@every 1s")
    assert_one_run_per_slot(six_recorders(start))


def test_the_same_check_fails_once_the_unique_key_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    without_row_locks(monkeypatch)
    start = second_ago(SLOTS)
    due_jobs(JOBS, start, schedule="@every 1s")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE scheduler_app_jobrun DROP CONSTRAINT run_one_per_slot")
        try:
            with pytest.raises(AssertionError):
                assert_one_run_per_slot(six_recorders(start))
        finally:
            cursor.execute("TRUNCATE scheduler_app_jobrun")
            cursor.execute(
                "ALTER TABLE scheduler_app_jobrun ADD CONSTRAINT run_one_per_slot UNIQUE (job_id, scheduled_for)"
            )


def test_a_job_that_another_holds_is_said_to_be_locked_and_the_rest_is_recorded() -> None:
    (held, *_) = due_jobs(3)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=held.pk)
        (done,) = together(1, lambda: record(None))
    assert (done.runs, done.locked, done.more) == (2, True, False)
    assert record(None).runs == 1  # type: ignore[union-attr]


def test_a_frozen_leader_cannot_commit_and_does_not_block_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader stops inside its recording transaction; PostgreSQL ends that transaction for it."""
    due_jobs(2)
    old = lead("frozen")
    inside, thaw = threading.Event(), threading.Event()
    write = Batch.write

    def freeze(batch: Batch, epoch: int | None) -> Batch:
        if epoch == old.epoch:
            inside.set()
            thaw.wait(20)
        return write(batch, epoch)

    monkeypatch.setattr(record_module, "IDLE", 0.3)
    monkeypatch.setattr(Batch, "write", freeze)
    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.extend(together(1, lambda: record(old))))
    thread.start()
    assert inside.wait(20)
    won = None
    while won is None:  # as a standby does: each try is bounded by a lock timeout
        try:
            with transaction.atomic():
                Term.objects.update(renewed_at=second_ago(60))
            won = elect.contend("successor")
        except OperationalError:
            continue
    assert record(won.fence).runs == 2  # type: ignore[union-attr]
    thaw.set()
    thread.join(20)
    assert isinstance(outcome[0], DatabaseError), "the frozen leader's transaction was ended"
    assert JobRun.objects.filter(recorded_epoch=won.fence.epoch).count() == 2
    assert JobRun.objects.count() == 2


def test_a_successor_waits_for_a_recording_that_is_about_to_commit() -> None:
    """Between a renewal and its commit nobody can take the term, so no older epoch records after a newer one."""
    due_jobs(1)
    old = lead("old")
    with transaction.atomic():
        assert term_store.renew_term(elect.SHARD, old.holder, old.epoch) is not None

        def take() -> object:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '200ms'")
                return term_store.free_term(elect.SHARD, old.holder, old.epoch)

        (refused,) = together(1, take)
    assert isinstance(refused, OperationalError)


def test_replace_comes_back_later_while_the_earlier_run_is_changing() -> None:
    (job,) = due_jobs(1, concurrency_policy="replace")
    earlier = a_run(job, scheduled_for=second_ago(100), status="running")
    with transaction.atomic():
        JobRun.objects.select_for_update().get(pk=earlier.pk)
        (done,) = together(1, lambda: record(None))
        assert (done.runs, done.locked) == (0, True)
    assert record(None).runs == 1  # type: ignore[union-attr]


def test_a_successor_of_a_run_that_ends_meanwhile_is_freed() -> None:
    (job,) = due_jobs(1, concurrency_policy="queue_all")
    earlier = a_run(job, scheduled_for=second_ago(100), status="running")
    with transaction.atomic():
        JobRun.objects.filter(pk=earlier.pk).update(status="succeeded", finished_at=second_ago())
        together(1, lambda: record(None))
    held = JobRun.objects.get(scheduled_for=job.next_run_at)
    assert held.held_by == earlier.pk, "the end was not visible to the recorder"
    assert release_orphans() == 1
    held.refresh_from_db()
    assert held.held_by is None
