"""The demo's verdict is earned: whatever is taken from a sound history turns it to failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection
from django.test import override_settings

from scheduler_app.local.demo.verdict import Deposed, Killed, Story, judge
from scheduler_app.models import Attempt, DeadLetter, Job, JobRun
from scheduler_app.store.define import database_now
from tests.support.definitions import a_job, a_run, known_tasks, options

pytestmark = pytest.mark.django_db(transaction=True)

SLOTS = 10
HEADERS = {"x-death": [{"reason": "rejected", "queue": "default", "count": 1}]}


def history() -> Story:
    """What a sound demo on the full stack leaves behind."""
    now = database_now()
    old, new = uuid4(), uuid4()
    job = a_job(name="heartbeat", schedule="@every 1s", end_at=now + timedelta(seconds=SLOTS))
    for slot in slots_of(job):
        a_run(job, scheduled_for=slot, status="succeeded", recorded_epoch=1)
    Job.objects.update(next_run_at=None)
    JobRun.objects.filter(scheduled_for__gt=now + timedelta(seconds=5)).update(recorded_epoch=2)
    flaky = a_run(status="succeeded", attempts=2, task="tasks.examples.flaky")
    tries(flaky, ("retry", old), ("returned", new))
    killed = a_run(status="succeeded", attempts=2, task="tasks.examples.slow")
    tries(killed, ("worker_lost", old), ("returned", new))
    poison = a_run(status="dead", attempts=3, last_error="ValueError: never", task="tasks.examples.poison")
    tries(poison, ("retry", old), ("retry", old), ("retry", new))
    DeadLetter.objects.create(run_id=poison.id, attempt=3, reason="rejected", headers=HEADERS)
    default_storage.save("reports/2026-12.csv", ContentFile(b"head\nrow\nrow\n"))
    a_run(status="succeeded", task="tasks.reports.monthly_csv", result={"path": "reports/2026-12.csv", "rows": 2})
    return Story(
        added=a_run(status="succeeded", task="tasks.examples.add", result=42).id,
        rolled_back=uuid4(),
        poison=poison.id,
        killed=Killed(old, killed.id, now),
        deposed=Deposed(1, now),
        full=True,
    )


def slots_of(job: Job) -> list[datetime]:
    assert job.next_run_at is not None
    return [job.next_run_at + timedelta(seconds=n) for n in range(SLOTS)]


def tries(run: JobRun, *ends: tuple[str, object]) -> None:
    for number, (outcome, worker) in enumerate(ends, start=1):
        at = database_now() + timedelta(seconds=number)
        Attempt.objects.create(
            run_id=run.id, number=number, worker=worker, outcome=outcome, started_at=at, finished_at=at
        )


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with known_tasks(options()), override_settings(MEDIA_ROOT=tmp_path):
        yield history()


def broken(story: Story) -> dict[str, list[str]]:
    return {check.name: list(check.faults) for check in judge(story) if not check.held}


def test_the_promise_holds_for_a_sound_history(story: Story) -> None:
    assert broken(story) == {}


def test_a_run_that_is_taken_away_breaks_it(story: Story) -> None:
    run = JobRun.objects.filter(job__name="heartbeat")[3]
    run.delete()
    assert list(broken(story)) == ["One run per slot"]
    assert run.scheduled_for.isoformat() in broken(story)["One run per slot"][0]


def test_the_dropped_constraint_breaks_it_and_so_does_what_it_forbade(story: Story) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE scheduler_app_jobrun DROP CONSTRAINT run_one_per_slot")
        try:
            assert "the unique constraint" in broken(story)["Duplicates"][0]
            run = JobRun.objects.filter(job__name="heartbeat")[3]
            a_run(run.job, scheduled_for=run.scheduled_for, status="succeeded", recorded_epoch=2)
            assert any("two runs for the slot" in fault for fault in broken(story)["Duplicates"])
        finally:
            JobRun.objects.all().delete()
            cursor.execute(
                "ALTER TABLE scheduler_app_jobrun ADD CONSTRAINT run_one_per_slot UNIQUE (job_id, scheduled_for)"
            )


def leave_a_run_open(story: Story) -> None:
    a_run(task="tasks.examples.ok")


def skip_a_slot(story: Story) -> None:
    run = JobRun.objects.filter(job__name="heartbeat")[2]
    JobRun.objects.filter(pk=run.pk).update(status="skipped", reason="overlap")


def repeat_a_success(story: Story) -> None:
    Attempt.objects.filter(outcome="worker_lost").update(outcome="returned")


def lose_an_attempt(story: Story) -> None:
    Attempt.objects.filter(run_id=story.poison, number=2).delete()


def retry_nothing(story: Story) -> None:
    flaky = JobRun.objects.filter(task="tasks.examples.flaky")
    Attempt.objects.filter(run_id__in=flaky.values("id"), number=1).delete()
    Attempt.objects.filter(run_id__in=flaky.values("id")).update(number=1)
    flaky.update(attempts=1)


def fail_the_call(story: Story) -> None:
    JobRun.objects.filter(pk=story.added).update(status="dead", reason="failed")


def keep_what_was_rolled_back(story: Story) -> None:
    a_run(id=story.rolled_back, status="succeeded")


def revive_the_poison(story: Story) -> None:
    JobRun.objects.filter(pk=story.poison).update(status="succeeded", reason="")


def lose_the_letter(story: Story) -> None:
    DeadLetter.objects.all().delete()


def pass_by_the_exchange(story: Story) -> None:
    DeadLetter.objects.update(headers={})


def never_resume(story: Story) -> None:
    assert story.killed is not None
    Attempt.objects.filter(run_id=story.killed.run, number=2).delete()


def never_replace_the_leader(story: Story) -> None:
    JobRun.objects.update(recorded_epoch=1)


def interleave_the_epochs(story: Story) -> None:
    first = JobRun.objects.filter(recorded_epoch=1).order_by("seq")[0]
    JobRun.objects.filter(pk=first.pk).update(created_at=database_now() + timedelta(minutes=1))


def cut_the_report(story: Story) -> None:
    default_storage.delete("reports/2026-12.csv")
    default_storage.save("reports/2026-12.csv", ContentFile(b"head\nrow\n"))


def kill_nobody(story: Story) -> None:
    story.killed = story.deposed = None


@pytest.mark.parametrize(
    "spoil",
    [
        leave_a_run_open,
        skip_a_slot,
        repeat_a_success,
        lose_an_attempt,
        retry_nothing,
        fail_the_call,
        keep_what_was_rolled_back,
        revive_the_poison,
        lose_the_letter,
        pass_by_the_exchange,
        never_resume,
        never_replace_the_leader,
        interleave_the_epochs,
        cut_the_report,
        kill_nobody,
    ],
)
def test_everything_else_that_would_be_a_lie_breaks_it_too(story: Story, spoil: Callable[[Story], None]) -> None:
    spoil(story)
    assert broken(story)
