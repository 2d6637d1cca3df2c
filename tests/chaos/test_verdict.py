"""The verdict of the chaos is earned: whatever is taken from a sound history, its own check turns to failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import connection

from scheduler_app.local.demo.verdict import Check
from scheduler_app.models import Attempt, DeadLetter, Job, JobRun, SkippedRange
from scheduler_app.store.define import database_now
from tests.chaos import verdict
from tests.chaos.work import STEPS, make_tables
from tests.support.definitions import a_job, a_run, known_tasks, options

pytestmark = pytest.mark.django_db
SLOTS = 6


@pytest.fixture(autouse=True)
def _history() -> Iterator[None]:
    """A forbidding job with all of its slots, the last two of them skipped; a transfer, a stepwise run, a poison."""
    with known_tasks(options()):
        now = database_now()
        job = a_job(name="forbid 000", schedule="@every 10s", end_at=now + timedelta(seconds=10 * SLOTS))
        assert job.next_run_at is not None
        slots = [job.next_run_at + timedelta(seconds=10 * n) for n in range(SLOTS)]
        for slot in slots[:-2]:
            a_run(job, scheduled_for=slot, status="succeeded", started_at=slot, finished_at=slot + timedelta(seconds=5))
        SkippedRange.objects.create(job=job, first=slots[-2], last=slots[-1], count=2, reason="catch_up", job_version=1)
        make_tables()
        for task, kinds in {"transfer": ("transfer",), "stepwise": STEPS}.items():
            run = a_run(task=f"tests.chaos.work.{task}", status="succeeded")
            for kind in kinds:
                done(run, kind)
        poison = a_run(task="tests.chaos.work.poison", status="dead")
        DeadLetter.objects.create(run_id=poison.pk, attempt=1, reason="failed")
        yield


def done(run: JobRun, kind: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO chaos_effect (run, attempt, kind) VALUES (%s, 1, %s)", [run.pk, kind])


def of(task: str) -> JobRun:
    return JobRun.objects.get(task=f"tests.chaos.work.{task}")


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def take_a_run() -> None:
    JobRun.objects.filter(job__isnull=False)[1].delete()


def take_the_skipped() -> None:
    SkippedRange.objects.all().delete()


def skip_what_ran() -> None:
    SkippedRange.objects.update(first=JobRun.objects.filter(job__isnull=False)[0].scheduled_for)


def invent_a_slot() -> None:
    a_run(Job.objects.get(), scheduled_for=database_now() - timedelta(days=1), status="succeeded")


def leave_one_queued() -> None:
    a_run()


def lose_an_attempt() -> None:
    JobRun.objects.filter(job__isnull=False).update(attempts=2)


def bury_nothing() -> None:
    DeadLetter.objects.all().delete()


def kill_a_transfer() -> None:
    JobRun.objects.filter(pk=of("transfer").pk).update(status="dead", reason="failed")
    DeadLetter.objects.create(run_id=of("transfer").pk, attempt=1, reason="failed")


def bury_a_message() -> None:
    DeadLetter.objects.create(reason="malformed", digest="d")


def make_money() -> None:
    sql("UPDATE chaos_account SET balance = balance + 1 WHERE id = 3")


def book_twice() -> None:
    done(of("transfer"), "transfer")


def book_never() -> None:
    sql("DELETE FROM chaos_effect WHERE kind = 'transfer'")


def book_what_failed() -> None:
    done(a_run(task="tests.chaos.work.transfer", status="dead"), "transfer")


def repeat_a_step() -> None:
    done(of("stepwise"), STEPS[1])


def leave_a_step_out() -> None:
    sql(f"DELETE FROM chaos_effect WHERE kind = '{STEPS[2]}'")


def let_two_overlap() -> None:
    first = JobRun.objects.filter(job__isnull=False).order_by("scheduled_for")[0]
    JobRun.objects.filter(pk=first.pk).update(finished_at=first.finished_at + timedelta(seconds=10))


def let_a_lost_attempt_overlap() -> None:
    first, second = JobRun.objects.filter(job__isnull=False).order_by("scheduled_for")[:2]
    start = second.scheduled_for + timedelta(seconds=1)
    Attempt.objects.create(run_id=first.pk, number=2, started_at=start, finished_at=start, outcome="lost")


SPOILS: dict[Callable[[], None], Callable[[], Check]] = {
    take_a_run: verdict.slots_accounted,
    take_the_skipped: verdict.slots_accounted,
    skip_what_ran: verdict.slots_accounted,
    invent_a_slot: verdict.slots_accounted,
    leave_one_queued: verdict.settled,
    lose_an_attempt: verdict.invariants,
    bury_nothing: verdict.deaths_on_record,
    kill_a_transfer: verdict.deaths_on_record,
    bury_a_message: verdict.deaths_on_record,
    make_money: verdict.money_conserved,
    book_twice: verdict.money_conserved,
    book_never: verdict.money_conserved,
    book_what_failed: verdict.money_conserved,
    repeat_a_step: verdict.steps_done_once,
    leave_a_step_out: verdict.steps_done_once,
    let_two_overlap: verdict.never_two_at_once,
    let_a_lost_attempt_overlap: verdict.never_two_at_once,
}


@pytest.mark.parametrize(("spoil", "check"), SPOILS.items(), ids=[spoil.__name__ for spoil in SPOILS])
def test_each_check_holds_and_fails_once_its_truth_is_gone(
    spoil: Callable[[], None], check: Callable[[], Check]
) -> None:
    assert list(check().faults) == []
    spoil()
    assert check().faults
