"""What is refused where it is entered: the field's name and the reason, all faults at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.lifecycle import define
from scheduler_app.lifecycle.rules import InvalidJob, payload_from_text
from scheduler_app.models import Job
from scheduler_app.store.define import database_now
from tests.support.definitions import a_job, greet, known_tasks, options

pytestmark = pytest.mark.django_db
GOOD: dict[str, Any] = {"name": "report", "task": "tests.report", "schedule": "0 9 * * *"}
DEEP: Any = {}
for _ in range(20_000):
    DEEP = {"d": DEEP}


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options(), options("tests.greet", greet)):
        yield


BAD = {
    "no name": ({"name": ""}, "name", "must not be empty"),
    "a name with a control character": ({"name": "a\x00b"}, "name", "must be one line"),
    "a name with a blank end": ({"name": "a "}, "name", "blanks at its ends"),
    "a long name": ({"name": "n" * 201}, "name", "longer than 200"),
    "a name that is a number": ({"name": 5}, "name", "must be text, not a number"),
    "an unknown task": ({"task": "tests.gone"}, "task", "is not a durable task known here; known are tests.greet"),
    "no task": ({"task": ""}, "task", "must not be empty"),
    "a list of arguments": ({"payload": [1]}, "payload", "must be a JSON object"),
    "arguments of another task": ({"payload": {"year": 1}}, "payload", "does not fit tests.report(month"),
    "a missing argument": ({"task": "tests.greet"}, "payload", "missing a required argument: 'name'"),
    "arguments with NaN": ({"payload": {"rows": float("nan")}}, "payload", "cannot be written as JSON"),
    "arguments with NUL": ({"payload": {"month": "a\x00"}}, "payload", "NUL"),
    "arguments with half a character": ({"payload": {"month": "\ud800"}}, "payload", "lone surrogate"),
    "large arguments": ({"payload": {"month": "m" * 300_000}}, "payload", "the limit is 262144"),
    "numbers for names": ({"payload": {1: 2}}, "payload", "text keys"),
    "deep arguments": ({"payload": {"month": DEEP}}, "payload", "cannot be written as JSON"),
    "arguments that are no JSON": ({"payload": {"month": object()}}, "payload", "cannot be written as JSON"),
    "a bad hour": ({"schedule": "0 25 * * *"}, "schedule", "hour"),
    "words": ({"schedule": "every day"}, "schedule", ""),
    "reboot": ({"schedule": "@reboot"}, "schedule", "@reboot"),
    "a schedule that is no text": ({"schedule": None}, "schedule", "must be text, not nothing"),
    "an instant in the past": ({"schedule": "@at 2020-01-01T00:00:00Z"}, "schedule", "lies in the past"),
    "an unknown zone": ({"timezone": "Mars/Base"}, "timezone", "is not a known IANA time zone"),
    "an unknown zone on demand": ({"schedule": "", "timezone": "Mars/Base"}, "timezone", "IANA"),
    "no zone": ({"timezone": ""}, "timezone", "must not be empty"),
    "an unknown queue": ({"queue": "nowhere"}, "queue", "is not one of default"),
    "a priority of ten": ({"priority": 10}, "priority", "must be from 0 to 9"),
    "a priority that is true": ({"priority": True}, "priority", "must be a whole number"),
    "a time limit of zero": ({"time_limit": 0}, "time_limit", "must be 1 or more"),
    "a time limit of nothing": ({"time_limit": None}, "time_limit", "must be a whole number"),
    "no attempts": ({"max_attempts": 0}, "max_attempts", "must be 1 or more"),
    "a policy of none": ({"concurrency_policy": "perhaps"}, "concurrency_policy", "allow, forbid, replace"),
    "a catch-up of none": ({"catch_up": "some"}, "catch_up", "must be one of latest"),
    "a huge catch-up": ({"catch_up_limit": 10**9}, "catch_up_limit", "must be from 1 to 10000"),
    "a negative grace": ({"misfire_grace": -1}, "misfire_grace", "must be 0 or more"),
    "half a second of jitter": ({"jitter": 0.5}, "jitter", "must be a whole number"),
    "an endless backoff": ({"retry_backoff": float("inf")}, "retry_backoff", "number of seconds"),
    "a negative backoff": ({"retry_backoff_max": -1}, "retry_backoff_max", "must be 0 seconds or more"),
    "a deadline of zero": ({"starting_deadline": 0}, "starting_deadline", "must be 1 or more"),
    "a number beyond its column": ({"jitter": 2**31}, "jitter", "must be 2147483647 or less"),
    "a backoff beyond its column": ({"retry_backoff": 1e308}, "retry_backoff", "must be 2147483647 seconds or less"),
    "a start without a zone": ({"start_at": datetime(2030, 1, 1)}, "start_at", "offset from UTC"),  # noqa: DTZ001
    "a start that is text": ({"start_at": "2030-01-01"}, "start_at", "must be a date and time, not text"),
    "a gap of none": ({"gap": "jump"}, "gap", "must be one of shift, skip"),
    "enabled perhaps": ({"enabled": "yes"}, "enabled", "must be true or false"),
    "a field of nothing": ({"cron": "* * * * *"}, "cron", "is not a field of a job"),
    "the cursor": ({"next_run_at": None}, "next_run_at", "is not a field of a job"),
}


@pytest.mark.parametrize(("fields", "field", "reason"), BAD.values(), ids=BAD.keys())
def test_refused_with_field_and_reason(fields: dict[str, Any], field: str, reason: str) -> None:
    faults = define.validate(GOOD | fields)
    assert [fault.field for fault in faults] == [field]
    assert reason in faults[0].reason
    with pytest.raises(InvalidJob) as caught:
        define.create(GOOD | fields, origin="code")
    assert [(fault.field, fault.reason) for fault in caught.value.faults] == [(f.field, f.reason) for f in faults]
    assert not Job.objects.exists()


@pytest.mark.parametrize(("fields", "field", "reason"), BAD.values(), ids=BAD.keys())
def test_refused_in_an_edit_as_in_a_new_job(fields: dict[str, Any], field: str, reason: str) -> None:
    job = a_job()
    faults = define.validate(fields, job)
    assert [fault.field for fault in faults] == [field]
    assert reason in faults[0].reason


def test_all_faults_come_at_once() -> None:
    faults = define.validate(GOOD | {"task": "x", "schedule": "99 * * * *", "timezone": "Mars/Base", "time_limit": 0})
    assert [fault.field for fault in faults] == ["task", "time_limit", "timezone", "schedule"]


def test_nothing_at_all_names_what_is_required() -> None:
    assert {fault.field for fault in define.validate({})} == {"name", "task"}


def test_the_name_of_another_job_is_taken_but_not_its_own() -> None:
    job = a_job()
    assert [str(fault) for fault in define.validate(GOOD)] == ["name: is taken by another job"]
    assert define.validate(GOOD, job) == []


def test_a_window_must_be_a_window_and_leave_a_slot() -> None:
    now = database_now()
    day = timedelta(days=1)
    assert [str(f) for f in define.validate(GOOD | {"start_at": now + 2 * day, "end_at": now + day})] == [
        "end_at: must not be before start_at"
    ]
    assert [str(f) for f in define.validate(GOOD | {"end_at": now - day})] == [
        "end_at: lies in the past, no slot is left"
    ]
    narrow = {"schedule": "0 0 29 2 *", "end_at": now + timedelta(seconds=1)}
    assert [str(f) for f in define.validate(GOOD | narrow)] == ["schedule: has no slot within start_at and end_at"]


@pytest.mark.parametrize("schedule", ["@daily", "@every 5m", "0 9 * * 1"])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
@pytest.mark.parametrize(
    "window", [{"start_at": datetime(1, 1, 1, tzinfo=UTC)}, {"end_at": datetime(9998, 12, 31, tzinfo=UTC)}], ids=str
)
def test_a_window_may_reach_to_the_ends_of_the_calendar(schedule: str, zone: str, window: dict[str, datetime]) -> None:
    assert a_job(schedule=schedule, timezone=zone, **window).next_run_at is not None


def test_a_job_that_used_up_its_runs_is_not_started_again_by_an_edit() -> None:
    job = a_job(max_runs=1)
    Job.objects.filter(pk=job.pk).update(recorded_runs=1)
    with pytest.raises(InvalidJob, match="max_runs: is used up: 1 runs were recorded"):
        define.update(job.pk, {"schedule": "@hourly"})


def test_a_once_that_has_passed_can_still_be_renamed() -> None:
    job = a_job()
    Job.objects.filter(pk=job.pk).update(schedule="@at 2020-01-01T00:00:00Z", next_run_at=None)
    assert define.update(job.pk, {"name": "was once"}).name == "was once"


@pytest.mark.parametrize("text", ["{", "[1,]", '{"a": NaN}', '{"a": Infinity}', "[" * 100_000, "nothing"])
def test_what_is_typed_as_arguments_must_be_json(text: str) -> None:
    with pytest.raises(InvalidDefinition, match="payload: is not JSON"):
        payload_from_text(text)


def test_no_text_means_no_arguments() -> None:
    assert payload_from_text("  ") == {}


def test_a_name_taken_between_check_and_save_is_refused_in_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    a_job()
    monkeypatch.setattr("scheduler_app.lifecycle.validate._is_taken", lambda job: False)
    with pytest.raises(InvalidJob, match="name: is taken by another job"):
        a_job()
    assert Job.objects.count() == 1
