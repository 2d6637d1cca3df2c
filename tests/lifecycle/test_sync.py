"""Schedules declared on tasks become jobs, and stay what people made of them."""

from __future__ import annotations

import pytest

from scheduler_app.lifecycle import define
from scheduler_app.lifecycle.sync import GONE, NothingDeclared, sync
from scheduler_app.models import Job
from scheduler_app.store.define import database_now
from tests.support.definitions import a_job, greet, known_tasks, options

pytestmark = pytest.mark.django_db
DECLARED = options(schedule="0 9 * * 1", timezone="Europe/Berlin", time_limit=600, queue="slow")


def test_a_declared_schedule_becomes_a_job_of_origin_code() -> None:
    with known_tasks(DECLARED, options("tests.greet", greet)):
        assert sync().created == ["tests.report"]
    job = Job.objects.get()
    assert (job.name, job.origin, job.task, job.schedule) == ("tests.report", "code", "tests.report", "0 9 * * 1")
    assert (job.timezone, job.time_limit, job.queue, job.max_attempts) == ("Europe/Berlin", 600, "slow", None)
    assert job.next_run_at is not None


def test_the_same_declaration_again_changes_nothing() -> None:
    with known_tasks(DECLARED):
        sync()
        before = Job.objects.values().get()
        assert sync().unchanged == ["tests.report"]
    assert Job.objects.values().get() == before


def test_a_changed_declaration_changes_the_job_and_leaves_what_people_decided() -> None:
    with known_tasks(DECLARED):
        sync()
    job = Job.objects.get()
    define.update(job.pk, {"payload": {"rows": 1}, "max_attempts": 2, "enabled": False})
    define.pause(job.pk, "on holiday")
    with known_tasks(options(schedule="@hourly", job_name="tests.report")):
        assert sync().updated == ["tests.report"]
    job.refresh_from_db()
    assert (job.schedule, job.timezone, job.queue) == ("@hourly", "UTC", "default")
    assert (job.payload, job.max_attempts, job.enabled, job.pause_reason) == ({"rows": 1}, 2, False, "on holiday")


def test_a_removed_declaration_switches_its_job_off_and_its_return_switches_it_on() -> None:
    with known_tasks(DECLARED):
        sync()
    with known_tasks(options()):
        assert sync().disabled == ["tests.report"]
        assert sync().disabled == []
    job = Job.objects.get()
    assert (job.enabled, job.pause_reason, job.next_run_at) == (False, GONE, None)
    with known_tasks(DECLARED):
        assert sync().updated == ["tests.report"]
    job.refresh_from_db()
    assert (job.enabled, job.pause_reason) == (True, "")
    assert job.next_run_at is not None


def test_a_job_that_a_person_switched_off_stays_off() -> None:
    with known_tasks(DECLARED):
        sync()
        define.update(Job.objects.get().pk, {"enabled": False})
        sync()
    assert not Job.objects.get().enabled


def test_a_job_that_a_person_made_is_never_adopted() -> None:
    with known_tasks(DECLARED):
        job = a_job(name="tests.report", schedule="@daily")
        assert "is taken by a job of origin admin" in sync().refused["tests.report"]
        job.refresh_from_db()
    assert (job.schedule, job.origin) == ("@daily", "admin")


def test_one_bad_declaration_is_told_and_the_others_go_on() -> None:
    bad = options("tests.greet", greet, schedule="@daily")
    twice = options("tests.again", schedule="@daily", job_name="tests.report")
    with known_tasks(DECLARED, bad, twice):
        result = sync()
    assert result.created == ["tests.report"]
    assert "missing a required argument" in result.refused["tests.greet"]
    assert Job.objects.count() == 1
    assert "declare a job of the same name" in result.refused["tests.report"]


def test_a_changed_declaration_lifts_a_quarantine_and_the_same_one_does_not() -> None:
    """What an unknown task set aside, the leader takes back by itself, with the slots that it owes."""
    with known_tasks(DECLARED):
        sync()
        Job.objects.update(quarantined_at=database_now(), quarantine_reason="it cannot be planned")
        assert sync().unchanged == ["tests.report"]
    with known_tasks(options(schedule="@daily")):
        assert sync().updated == ["tests.report"]
    assert Job.objects.get().quarantined_at is None


def test_a_process_that_knows_no_task_switches_nothing_off() -> None:
    with known_tasks(DECLARED):
        sync()
    with known_tasks(), pytest.raises(NothingDeclared):
        sync()
    assert Job.objects.get().enabled
