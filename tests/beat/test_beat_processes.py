"""Real beats that are killed, stopped and frozen: another records in time, and every slot has one run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from django.db import connection
from django.db.models import Max, Min

from scheduler_app.models import JobRun, SkippedRange, Term
from scheduler_app.store.term import database_time
from tests.support.beats import due_jobs, second_ago
from tests.support.crash_points import trap
from tests.support.programs import BeatProcess, programs, promised, wait_until

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

Start = Callable[..., BeatProcess]
TASK = "tasks.examples.ok"
JOBS = 20


@pytest.fixture
def start() -> Iterator[Start]:
    Term.objects.all().delete()
    with programs() as started:
        yield started.beat
    Term.objects.all().delete()


def every_second(jobs: int = JOBS) -> datetime:
    """Jobs of every second, beginning now; the first slot."""
    first = second_ago()
    due_jobs(jobs, first, schedule="@every 1s", task=TASK)
    return first


def assert_every_slot_has_one_run(first: datetime, jobs: int = JOBS) -> None:
    """From the first slot to the last recorded one, for every job; nothing was skipped."""
    last = JobRun.objects.aggregate(last=Max("scheduled_for"))["last"]
    slots = round((last - first).total_seconds()) + 1
    recorded = JobRun.objects.values_list("job_id", "scheduled_for")
    assert len(set(recorded)) == len(recorded), "a slot has two runs"
    complete = JobRun.objects.filter(scheduled_for__lt=last).count()
    assert complete == jobs * (slots - 1), "a slot has no run"
    assert not JobRun.objects.filter(status="skipped").exists()
    assert not SkippedRange.objects.exists()


def epochs_follow_each_other() -> bool:
    """No run was recorded under an older epoch after a newer one began."""
    spans = list(
        JobRun.objects.values("recorded_epoch")
        .annotate(first=Min("created_at"), last=Max("created_at"))
        .order_by("recorded_epoch")
    )
    return all(before["last"] <= after["first"] for before, after in pairwise(spans))


def first_of_next_epoch(epoch: int) -> datetime:
    """When the next leader recorded its first run."""
    newer = JobRun.objects.filter(recorded_epoch__gt=epoch)
    wait_until(newer.exists, 30, "the next leader's first run")
    found: datetime = newer.aggregate(first=Min("created_at"))["first"]
    return found


@pytest.mark.timed
@pytest.mark.parametrize(("number", "code", "within"), [(signal.SIGKILL, -9, 6), (signal.SIGTERM, 0, 2)])
def test_when_the_leader_ends_the_next_beat_records_in_time(
    start: Start, number: int, code: int, within: float
) -> None:
    leader = start("leader").leads()
    standby = start("standby").ready()
    first = every_second()
    wait_until(lambda: JobRun.objects.count() >= JOBS, 30, "the first runs")
    epoch = Term.objects.get().epoch
    at = database_time()
    leader.kill(number)
    late = first_of_next_epoch(epoch) - at
    assert leader.wait() == code
    assert late < promised(within)
    wait_until(lambda: JobRun.objects.filter(scheduled_for__gt=at + timedelta(seconds=2)).exists())
    standby.kill(signal.SIGTERM)
    assert standby.wait() == 0
    assert_every_slot_has_one_run(first)
    assert epochs_follow_each_other()
    assert leader.lines_of_error == standby.lines_of_error == []
    assert Term.objects.get().holder == ""


@pytest.mark.timed
def test_a_leader_frozen_inside_a_recording_transaction_is_refused_and_lives_on(start: Start, tmp_path: Path) -> None:
    flag = tmp_path / "freeze"
    writing = "scheduler_app.lifecycle.batch:Batch.write"
    freeze = trap(writing, flag, before=True, when="lambda batch, _: batch.slots", number=signal.SIGSTOP)
    frozen = start("frozen", before=freeze).leads()
    standby = start("standby").ready()
    first = every_second()
    wait_until(lambda: JobRun.objects.count() >= JOBS, 30, "the first runs")
    epoch = Term.objects.get().epoch
    at = database_time()
    flag.touch()
    wait_until(lambda: not flag.exists(), 10, "the leader to freeze")
    assert first_of_next_epoch(epoch) - at < promised(6)
    recorded_by_frozen = JobRun.objects.filter(recorded_epoch=epoch).count()
    wait_until(lambda: database_time() - at > timedelta(seconds=6), 10, "the term to be long over")
    frozen.kill(signal.SIGCONT)
    wait_until(lambda: "record: trying again" in frozen.log, 20, "the refused commit")
    wait_until(lambda: "standing by" in frozen.log, 20, "the former leader to stand by")
    assert frozen.alive
    assert JobRun.objects.filter(recorded_epoch=epoch).count() == recorded_by_frozen
    standby.kill(signal.SIGTERM)
    assert standby.wait() == 0
    frozen.leads()
    frozen.kill(signal.SIGTERM)
    assert frozen.wait() == 0
    assert_every_slot_has_one_run(first)
    assert epochs_follow_each_other()


def test_beats_outlive_the_loss_of_all_their_sessions(start: Start) -> None:
    made = [start(name).ready() for name in ("one", "two")]
    first = every_second()
    wait_until(lambda: JobRun.objects.count() >= JOBS, 60, "the first runs")
    for _ in range(3):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        at = database_time()
        wait_until(lambda at=at: JobRun.objects.filter(created_at__gt=at + timedelta(seconds=1)).exists(), 20)
    assert all(each.alive for each in made)
    for each in made:
        each.kill(signal.SIGTERM)
        assert each.wait() == 0
    assert_every_slot_has_one_run(first)
    assert epochs_follow_each_other()
    assert [line for each in made for line in each.lines_of_error] == []


def test_a_changed_job_is_taken_up_at_once(start: Start) -> None:
    start("only", EVERYSLOT_LOOP="30", EVERYSLOT_TERM="90").leads()
    due_jobs(1, second_ago(), task=TASK)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify('everyslot_jobs', '')")
    wait_until(lambda: JobRun.objects.filter(dispatched_at__isnull=False).exists(), 5, "the run, long before the loop")


ENTRY = """
from config.celery import app
app.conf.beat_schedule = {"often": {"task": "tests.ping", "schedule": 0.2}}
"""


def test_without_a_broker_recording_goes_on_and_a_signal_is_heard(start: Start) -> None:
    only = start("only", before=ENTRY, BROKER_URL="amqp://nobody@127.0.0.1:1//").leads()
    every_second()
    wait_until(lambda: JobRun.objects.count() >= 3 * JOBS, 20, "three slots")
    assert not JobRun.objects.filter(dispatched_at__isnull=False).exists()
    at = database_time()
    only.kill(signal.SIGTERM)
    assert only.wait() == 0
    assert database_time() - at < promised(4)
    assert Term.objects.get().holder == ""


@pytest.mark.parametrize(
    ("number", "jobs", "seconds"),
    [
        (2, JOBS, 8),
        pytest.param(2, 200, 60, marks=pytest.mark.proof),
        pytest.param(6, 200, 60, marks=pytest.mark.proof),
    ],
)
def test_many_beats_record_each_slot_once_without_a_line_of_error(
    start: Start, number: int, jobs: int, seconds: int
) -> None:
    made = [start(f"beat {n}") for n in range(number)]
    for each in made:
        each.ready()
    first = every_second(jobs)
    end = first + timedelta(seconds=seconds)
    wait_until(lambda: JobRun.objects.filter(scheduled_for__gte=end).exists(), seconds + 30, "the last slot")
    for each in made:
        each.kill(signal.SIGTERM)
    assert [each.wait() for each in made] == [0] * number
    assert_every_slot_has_one_run(first, jobs)
    assert JobRun.objects.count() >= jobs * (seconds - 3)
    assert [line for each in made for line in each.lines_of_error] == []
