"""How jobs are shown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from scheduler_app.lifecycle import define
from scheduler_app.lifecycle.overview import JobState, job_values, last_run, runs_of, state_of, why, with_last_run
from scheduler_app.models import Job
from scheduler_app.store.define import database_now
from tests.support.definitions import a_job, a_run, known_tasks, options

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options()):
        yield


def test_a_job_is_in_one_state_and_the_gravest_counts() -> None:
    now = database_now()
    job = a_job()
    assert state_of(job, now) is JobState.ENABLED
    job.next_run_at = None
    assert state_of(job, now) is JobState.ENDED
    job.schedule = ""
    assert state_of(job, now) is JobState.ON_DEMAND
    job.paused_until = now + timedelta(hours=1)
    assert state_of(job, now) is JobState.PAUSED
    job.enabled = False
    assert state_of(job, now) is JobState.DISABLED
    job.quarantined_at = now
    assert state_of(job, now) is JobState.QUARANTINED
    job.deleted_at = now
    assert state_of(job, now) is JobState.DELETED


def test_why_a_job_does_not_run() -> None:
    now = database_now()
    job = define.pause(a_job().pk, "moving", until=now + timedelta(hours=1))
    assert why(job, now).startswith("until ")
    assert why(job, now).endswith(" UTC: moving")
    assert why(define.pause(job.pk, "moving"), now) == "moving"
    assert why(define.resume(job.pk), now) == ""


def test_a_pause_without_an_end_has_no_end_in_json() -> None:
    values = job_values(define.pause(a_job().pk, "x"), database_now())
    assert (values["paused"], values["paused_until"], values["state"]) == (True, None, "paused")


def test_each_job_comes_with_its_own_newest_run() -> None:
    one, two, none = a_job(name="one"), a_job(name="two"), a_job(name="none")
    a_run(one, status="dead")
    newest = a_run(one, status="succeeded")
    other = a_run(two, status="skipped")
    found = {job.pk: last_run(job) for job in with_last_run(Job.objects.all())}
    assert found[none.pk] is None
    assert [(each.id, each.status, each.at) for each in (found[one.pk], found[two.pk]) if each] == [
        (str(newest.pk), "succeeded", newest.scheduled_for),
        (str(other.pk), "skipped", other.scheduled_for),
    ]
    assert runs_of(one.pk).first() == newest
    assert runs_of(one.pk).count() == 2


def test_the_newest_runs_of_a_job_are_read_from_its_stretch_of_the_index() -> None:
    """Also of a job that has none, where the order by `seq` alone would walk through everybody's runs."""
    plan = runs_of(a_job().pk)[:50].explain()
    assert "run_history" in plan
    assert "seq_key" not in plan
