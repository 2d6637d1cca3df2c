"""Creating, changing, pausing, resuming and deleting jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from scheduler_app.core.retry import RetryOverrides
from scheduler_app.lifecycle import define
from scheduler_app.lifecycle.rules import InvalidJob
from scheduler_app.models import Job, JobRun, SkippedRange
from scheduler_app.store.define import database_now
from tests.support.definitions import a_job, a_run, greet, known_tasks, options, set_cursor

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options(), options("tests.greet", greet)):
        yield


def test_a_new_job_first_runs_at_the_first_slot_strictly_after_now() -> None:
    job = a_job(schedule="@every 1h")
    now = database_now()
    assert job.next_run_at is not None
    assert now < job.next_run_at <= now + HOUR
    assert job.anchor.microsecond == 0
    assert job.next_run_at == job.anchor + HOUR


def test_the_instant_of_a_jobs_creation_is_the_one_from_which_its_slots_count(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = database_now().replace(microsecond=999_999)
    monkeypatch.setattr(define, "database_now", lambda: edge)
    job = a_job(schedule="@every 1s")
    job.refresh_from_db()
    assert job.created_at == edge
    assert job.next_run_at == edge + timedelta(microseconds=1)


def test_a_new_job_that_starts_later_has_its_first_slot_at_its_start() -> None:
    start = database_now().replace(microsecond=0) + timedelta(days=3)
    assert a_job(schedule="@every 1h", start_at=start).next_run_at == start


def test_a_job_on_demand_has_no_cursor() -> None:
    assert a_job(schedule="").next_run_at is None


def test_a_disabled_job_has_no_cursor_until_it_is_enabled() -> None:
    job = a_job(enabled=False)
    assert job.next_run_at is None
    job = define.update(job.pk, {"enabled": True})
    assert job.next_run_at is not None
    assert job.next_run_at > database_now()


def test_an_edit_that_does_not_touch_the_schedule_leaves_the_cursor() -> None:
    job = a_job()
    behind = database_now() - 2 * HOUR
    set_cursor(job, behind)
    job = define.update(job.pk, {"payload": {"rows": 3}, "priority": 9})
    assert (job.next_run_at, job.payload, job.priority) == (behind, {"rows": 3}, 9)


def test_an_edit_of_the_schedule_notes_the_slots_it_leaves_behind() -> None:
    job = a_job(schedule="@every 60s")
    first = job.anchor - 10 * timedelta(seconds=60)
    set_cursor(job, first)
    version = job.version
    job = define.update(job.pk, {"schedule": "0 9 * * *"})
    gap = SkippedRange.objects.get(job=job)
    assert (gap.first, gap.last, gap.count, gap.reason, gap.job_version) == (first, job.anchor, 11, "edited", version)
    assert job.next_run_at is not None
    assert job.next_run_at > database_now()


def test_a_new_name_moves_the_slots_only_where_the_schedule_is_drawn_from_it() -> None:
    plain, drawn = a_job(schedule="0 9 * * *"), a_job(name="drawn", schedule="H H * * *")
    behind = database_now() - HOUR
    for job in (plain, drawn):
        set_cursor(job, behind)
        define.update(job.pk, {"name": f"{job.name} renamed"})
    assert Job.objects.get(pk=plain.pk).next_run_at == behind
    assert Job.objects.get(pk=drawn.pk).next_run_at != behind


def test_an_edit_takes_back_what_was_recorded_ahead_so_that_it_is_recorded_anew() -> None:
    job = a_job(schedule="@every 1h")
    ahead = job.next_run_at
    assert ahead is not None
    a_run(job, scheduled_for=ahead, run_after=ahead)
    started = a_run(job, scheduled_for=ahead + HOUR, run_after=ahead, status="running")
    waiting = a_run(job, scheduled_for=ahead - HOUR)
    Job.objects.filter(pk=job.pk).update(next_run_at=ahead + 2 * HOUR, recorded_runs=3)
    job = define.update(job.pk, {"payload": {"rows": 1}})
    assert (job.next_run_at, job.recorded_runs) == (ahead, 2)
    assert set(JobRun.objects.values_list("id", flat=True)) == {started.id, waiting.id}


def test_an_edit_from_an_old_version_is_refused_and_changes_nothing() -> None:
    job = a_job()
    define.update(job.pk, {"priority": 1}, expected_version=job.version)
    with pytest.raises(define.VersionConflict, match="changed by somebody else") as caught:
        define.update(job.pk, {"priority": 2}, expected_version=job.version)
    assert (caught.value.current, caught.value.expected) == (2, 1)
    assert Job.objects.get(pk=job.pk).priority == 1


def test_an_edit_that_changes_nothing_makes_no_new_version() -> None:
    job = a_job()
    assert define.update(job.pk, {"priority": job.priority, "payload": {}}).version == job.version


def test_a_pause_leaves_the_cursor_to_the_recorder_which_skips_visibly() -> None:
    job = a_job()
    until = database_now() + HOUR
    paused = define.pause(job.pk, "the printer is away", until=until, by="ann")
    assert (paused.next_run_at, paused.paused_until, paused.enabled) == (job.next_run_at, until, True)
    assert define.is_paused(paused, database_now())
    assert not define.is_paused(paused, until)


def test_a_pause_without_an_end_lasts_until_somebody_resumes() -> None:
    job = define.pause(a_job().pk, "broken", by="ann")
    assert job.paused_until == define.FOREVER
    job = define.resume(job.pk, by="ann")
    assert (job.paused_until, job.pause_reason) == (None, "")


@pytest.mark.parametrize("until", ["9999-12-31T23:59:59-14:00", "9999-06-01T00:00:00+00:00"])
def test_a_pause_until_what_no_reader_can_show_is_refused_and_changes_nothing(until: str) -> None:
    job = a_job()
    with pytest.raises(InvalidJob, match="years 1 to 9998"):
        define.pause(job.pk, "", until=datetime.fromisoformat(until))
    job.refresh_from_db()
    assert job.paused_until is None


def test_a_pause_into_the_past_is_refused() -> None:
    with pytest.raises(InvalidJob, match="paused_until: lies in the past"):
        define.pause(a_job().pk, "", until=database_now() - HOUR)


def test_resuming_runs_nothing_of_the_past_and_says_what_it_left() -> None:
    job = a_job(schedule="@every 1h")
    define.pause(job.pk, "")
    set_cursor(job, job.anchor - HOUR)
    job = define.resume(job.pk)
    assert job.next_run_at == job.anchor + HOUR
    assert SkippedRange.objects.get(job=job).reason == "paused"


def test_resuming_lifts_a_quarantine_only_when_its_reason_is_gone() -> None:
    job = a_job(task="tests.greet", payload={"name": "Ann"})
    with known_tasks(options()):
        _quarantine(job)
        with pytest.raises(InvalidJob, match=r"'tests\.greet' is not a durable task known here"):
            define.resume(job.pk)
    assert define.resume(job.pk).quarantined_at is None


def test_an_edit_that_mends_a_quarantined_job_lifts_it_and_one_that_does_not_leaves_it() -> None:
    job = a_job()
    Job.objects.filter(pk=job.pk).update(timezone="Mars/Base")
    _quarantine(job)
    assert define.update(job.pk, {"priority": 8}).quarantined_at is not None
    mended = define.update(job.pk, {"timezone": "UTC"})
    assert (mended.quarantined_at, mended.quarantine_reason) == (None, "")
    assert mended.next_run_at is not None
    assert mended.next_run_at > database_now()


def test_a_quarantined_job_can_be_switched_off_as_it_is() -> None:
    job = a_job()
    Job.objects.filter(pk=job.pk).update(task="tests.gone")
    _quarantine(job)
    assert not define.update(job.pk, {"enabled": False}).enabled


def test_a_deleted_job_leaves_its_row_and_frees_its_name() -> None:
    job = a_job()
    run = a_run(job, status="succeeded")
    gone = define.delete(job.pk, by="ann")
    assert (gone.name, gone.enabled, gone.next_run_at) == (f"report (deleted {job.pk})", False, None)
    assert gone.deleted_at is not None
    assert JobRun.objects.get(pk=run.pk).job_id == job.pk
    assert a_job().pk != job.pk
    with pytest.raises(define.JobMissing):
        define.resume(job.pk)


def test_deleting_a_job_with_the_longest_name_keeps_it_within_its_column() -> None:
    job = define.delete(a_job(name="n" * 200).pk)
    assert len(job.name) == 200


def test_arguments_are_stored_as_json_keeps_them() -> None:
    moment = datetime(2026, 12, 1, tzinfo=UTC)
    job = a_job(payload={"month": moment})
    assert job.payload["month"]["__type__"] == "datetime"
    assert define.update(job.pk, {"priority": 1}).payload == job.payload


def test_what_a_job_leaves_open_is_retried_as_its_task_declares() -> None:
    with known_tasks(options(retry=RetryOverrides(max_attempts=7, backoff=2.0))):
        policy = define.effective_retry(a_job(retry_backoff=9.0))
    assert (policy.max_attempts, policy.backoff, policy.backoff_max) == (7, 9.0, 600.0)


def test_what_a_new_job_leaves_out_is_as_its_task_declares() -> None:
    with known_tasks(options(queue="slow", priority=7, time_limit=1800)):
        job = a_job(name="left out")
        given = a_job(name="given", queue="fast", time_limit=5)
    assert (job.queue, job.priority, job.time_limit) == ("slow", 7, 1800)
    assert (given.queue, given.priority, given.time_limit) == ("fast", 7, 5)


@pytest.mark.django_db(transaction=True)
def test_every_change_wakes_the_recorder_after_its_commit() -> None:
    with connection.cursor() as cursor:
        cursor.execute("LISTEN everyslot_jobs")
    job = a_job()
    define.update(job.pk, {"priority": 1})
    define.pause(job.pk, "")
    define.resume(job.pk)
    define.delete(job.pk)
    notified = list(connection.connection.notifies(timeout=0, stop_after=10))
    assert [note.channel for note in notified] == ["everyslot_jobs"] * 5


def _quarantine(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(quarantined_at=database_now(), quarantine_reason="it cannot be planned")
