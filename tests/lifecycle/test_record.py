"""Recording: due jobs become runs, cursors move, bad jobs are set aside. One connection."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import ProgrammingError, connection, transaction

from scheduler_app.core.plan import Skip
from scheduler_app.instrument import subscribe
from scheduler_app.lifecycle.record import lift_quarantine, record, release_orphans
from scheduler_app.models import Job, JobRun, SkippedRange
from tests.support.beats import due_jobs, lead, second_ago
from tests.support.definitions import a_run, known_tasks, options

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _known():  # type: ignore[no-untyped-def]
    with known_tasks(options()):
        yield


def test_a_due_job_gets_a_run_that_carries_its_columns() -> None:
    (job,) = due_jobs(1, payload={"rows": 3}, queue="slow", priority=7, time_limit=30, max_attempts=2)
    done = record(None)
    assert done is not None
    assert (done.runs, done.skipped, done.quarantined, done.more, done.locked) == (1, 0, 0, False, False)
    run = JobRun.objects.get()
    assert (run.job_id, run.scheduled_for, run.run_after) == (job.pk, job.next_run_at, job.next_run_at)
    assert (run.task, run.args, run.payload, run.queue, run.priority) == (job.task, [], {"rows": 3}, "slow", 7)
    assert (run.status, run.attempts, run.max_attempts, run.time_limit, run.trigger) == ("queued", 0, 2, 30, "schedule")
    assert (run.job_version, run.recorded_epoch, run.dispatched_at) == (job.version, None, None)


def test_the_cursor_moves_with_the_run_and_the_run_is_counted() -> None:
    (job,) = due_jobs(1)
    assert job.next_run_at is not None
    record(None)
    after = Job.objects.get()
    assert (after.next_run_at, after.recorded_runs) == (job.next_run_at + timedelta(hours=1), 1)


def test_recording_again_finds_nothing_to_do() -> None:
    due_jobs(3)
    record(None)
    again = record(None)
    assert again is not None
    assert (again.runs, again.skipped, again.more, again.locked) == (0, 0, False, False)
    assert JobRun.objects.count() == 3


def test_a_slot_that_has_its_run_already_gets_no_second_one() -> None:
    (job,) = due_jobs(1)
    a_run(job, scheduled_for=job.next_run_at)
    done = record(None)
    assert done is not None
    assert done.runs == 0
    assert JobRun.objects.count() == 1
    assert Job.objects.get().next_run_at != job.next_run_at


@pytest.mark.parametrize(
    "columns",
    [
        {"enabled": False},
        {"deleted_at": second_ago},
        {"quarantined_at": second_ago, "quarantine_reason": "was bad"},
        {"next_run_at": None},
    ],
    ids=["disabled", "deleted", "quarantined", "on demand"],
)
def test_a_job_that_is_not_active_is_left_alone(columns: dict[str, object]) -> None:
    due_jobs(1, **{key: value() if callable(value) else value for key, value in columns.items()})
    record(None)
    assert JobRun.objects.count() == 0


def test_the_task_decides_the_attempts_where_the_job_does_not() -> None:
    from scheduler_app.core.retry import RetryOverrides

    with known_tasks(options(retry=RetryOverrides(max_attempts=9))):
        due_jobs(1)
        record(None)
    assert JobRun.objects.get().max_attempts == 9


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"task": "tests.removed"}, "no such task: tests.removed"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"schedule": "every day"}, "schedule"),
        ({"schedule": ""}, "schedule"),
        ({"concurrency_policy": "shrug"}, "KeyError"),
    ],
    ids=["unknown task", "broken zone", "broken schedule", "empty schedule", "anything else"],
)
def test_a_job_that_cannot_be_planned_is_set_aside_and_the_batch_goes_on(columns: dict[str, str], said: str) -> None:
    due_jobs(1, second_ago(5), name="bad", **columns)
    due_jobs(2, name="good")
    done = record(None)
    assert done is not None
    assert (done.runs, done.quarantined) == (2, 1)
    bad = Job.objects.get(name="bad-0")
    assert bad.enabled
    assert bad.quarantined_at is not None
    assert said in bad.quarantine_reason
    assert not JobRun.objects.filter(job=bad).exists()


def test_a_job_whose_runs_the_database_refuses_is_set_aside_too() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE scheduler_app_jobrun ADD CONSTRAINT refuse CHECK (queue <> 'cursed')")
    due_jobs(1, second_ago(5), name="bad", queue="cursed")
    due_jobs(3, name="good")
    done = record(None)
    assert done is not None
    assert (done.runs, done.quarantined) == (3, 1)
    assert "refuse" in Job.objects.get(name="bad-0").quarantine_reason
    assert JobRun.objects.count() == 3


def test_a_leader_that_knows_the_task_takes_the_job_back_and_its_slot_is_not_lost() -> None:
    (bad,) = due_jobs(1, task="tests.new")
    (broken,) = due_jobs(1, name="broken", timezone="Mars/Olympus")
    record(None)
    with known_tasks(options(), options("tests.new")):
        assert lift_quarantine() == 1
        record(None)
    assert JobRun.objects.get().scheduled_for == bad.next_run_at
    assert Job.objects.get(pk=broken.pk).quarantined_at is not None


def test_skipped_slots_are_rows_with_a_reason_and_long_gaps_are_one_row() -> None:
    start = second_ago(7200 * 3)
    (short,) = due_jobs(1, start, schedule="@every 1h", catch_up="none", name="short")
    (long,) = due_jobs(1, start, schedule="@every 1s", catch_up="none", name="long")
    now = start + timedelta(hours=3, minutes=30)
    done = record(None, now=now)
    assert done is not None
    skips = JobRun.objects.filter(job=short, status="skipped")
    assert [run.reason for run in skips] == [Skip.CATCH_UP] * 4
    assert all(run.finished_at is not None for run in skips)
    gap = SkippedRange.objects.get()
    assert (gap.job_id, gap.first, gap.last) == (long.pk, start, now - timedelta(seconds=61))
    assert gap.count == (gap.last - gap.first).total_seconds() + 1
    assert done.skipped == gap.count + 4
    assert Job.objects.get(pk=short.pk).recorded_runs == 0


def test_a_long_gap_of_a_cron_job_grows_as_one_row_over_several_passes() -> None:
    start = second_ago().replace(second=0) - timedelta(days=4)
    due_jobs(1, start, schedule="* * * * *", catch_up="none")
    now = start + timedelta(days=4)
    passes = 1
    while (done := record(None, now=now)) and done.more:
        passes += 1
    assert passes > 1
    gap = SkippedRange.objects.get()
    assert gap.first == start
    assert gap.count + JobRun.objects.count() == 4 * 1440 + 1


def test_a_job_years_behind_delays_no_other() -> None:
    start = second_ago().replace(second=0) - timedelta(days=700)
    due_jobs(3, start, schedule="* * * * *", catch_up="none", name="behind")
    due_jobs(1, name="punctual")
    first = record(None, batch=2)
    second = record(None, batch=2, newest_first=True)
    assert first is not None
    assert first.more
    assert second is not None
    assert JobRun.objects.filter(job__name="punctual-0", status="queued").exists()


def test_more_is_said_while_a_batch_was_full() -> None:
    due_jobs(5)
    answers = [record(None, batch=2) for _ in range(3)]
    assert [(each.runs, each.more) for each in answers if each] == [(2, True), (2, True), (1, False)]


def test_the_wait_runs_to_the_first_cursor_of_all() -> None:
    due_jobs(1, second_ago(-5))
    done = record(None)
    assert done is not None
    assert done.wait is not None
    assert 3 < done.wait <= 5
    Job.objects.all().delete()
    done = record(None)
    assert done is not None
    assert done.wait is None


def test_forbid_skips_visibly_while_a_run_is_active() -> None:
    (job,) = due_jobs(1, concurrency_policy="forbid")
    a_run(job, scheduled_for=second_ago(100), run_after=second_ago(-600), attempts=1)
    record(None)
    assert JobRun.objects.get(scheduled_for=job.next_run_at).reason == Skip.OVERLAP


def test_replace_cancels_the_unstarted_run_and_waits_for_the_running_one() -> None:
    (job,) = due_jobs(1, concurrency_policy="replace")
    running = a_run(job, scheduled_for=second_ago(200), status="running")
    waiting = a_run(job, scheduled_for=second_ago(100), held_by=running.id)
    record(None)
    running.refresh_from_db()
    waiting.refresh_from_db()
    new = JobRun.objects.get(scheduled_for=job.next_run_at)
    assert (waiting.status, waiting.reason, waiting.held_by) == ("cancelled", "replaced", None)
    assert (running.status, running.cancel_requested_at is not None) == ("running", True)
    assert (new.status, new.held_by) == ("queued", running.id)


def test_queue_all_lines_the_runs_up() -> None:
    due_jobs(1, second_ago(2), schedule="@every 1s", concurrency_policy="queue_all")
    record(None, now=second_ago())
    runs = list(JobRun.objects.order_by("scheduled_for"))
    assert [run.held_by for run in runs[1:]] == [run.id for run in runs[:-1]]
    assert runs[0].held_by is None


def test_a_run_held_by_nothing_alive_is_freed() -> None:
    (job,) = due_jobs(1)
    ended = a_run(job, scheduled_for=second_ago(300), status="succeeded")
    alive = a_run(job, scheduled_for=second_ago(200), status="running")
    orphan = a_run(job, scheduled_for=second_ago(100), held_by=ended.id)
    missing = a_run(job, scheduled_for=second_ago(90), held_by=UUID(int=5))
    held = a_run(job, scheduled_for=second_ago(80), held_by=alive.id)
    assert release_orphans() == 2
    assert set(JobRun.objects.filter(held_by=None, status="queued")) == {orphan, missing}
    held.refresh_from_db()
    assert held.held_by == alive.id


def test_a_run_names_the_epoch_it_was_recorded_under() -> None:
    due_jobs(1)
    fence = lead()
    record(fence)
    assert JobRun.objects.get().recorded_epoch == fence.epoch


def test_nothing_is_recorded_under_an_older_epoch() -> None:
    due_jobs(1)
    old = lead("first")
    lead("second")
    assert record(old) is None
    assert JobRun.objects.count() == 0
    assert Job.objects.get().recorded_runs == 0


def test_recording_without_the_unique_key_is_refused() -> None:
    due_jobs(1)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE scheduler_app_jobrun DROP CONSTRAINT run_one_per_slot")
        with pytest.raises(ProgrammingError, match="unique"), transaction.atomic():
            record(None)
        transaction.set_rollback(True)


def test_what_was_done_is_announced_after_the_commit() -> None:
    heard: list[tuple[str, dict[str, object]]] = []
    stop = subscribe(lambda event, fields: heard.append((event, fields)))
    try:
        due_jobs(2)
        due_jobs(1, name="bad", task="tests.removed")
        record(None)
    finally:
        stop()
    assert ("run.recorded", {"runs": 2, "skipped": 0, "jobs": 2}) in heard
    assert [event for event, _ in heard] == ["run.recorded", "job.quarantined"]
