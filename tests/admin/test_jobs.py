"""The pages of jobs: defining with a preview, refusing in the one set of words, starting, pausing and deleting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from scheduler_app.lifecycle import define
from scheduler_app.models import Job, JobRun
from scheduler_app.store.define import database_now
from tests.support.definitions import a_job, a_run, greet, known_tasks, options

pytestmark = pytest.mark.django_db
LIST = "/admin/scheduler_app/job/"
FORM: dict[str, Any] = {
    "name": "nightly", "task": "tests.report", "payload": '{"rows": 3}', "schedule": "0 2 * * *",
    "timezone": "Europe/Berlin", "enabled": "on", "queue": "default", "priority": "4", "concurrency_policy": "allow",
    "catch_up": "latest", "catch_up_limit": "100", "misfire_grace": "60", "jitter": "0", "time_limit": "900",
    "retry_jitter": "",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options(), options("tests.greet", greet)):
        yield


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    return client


def page(job: Job, verb: str = "change") -> str:
    return f"{LIST}{job.pk}/{verb}/"


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


def test_a_job_is_defined_through_the_form(client: Client) -> None:
    answer = client.post(f"{LIST}add/", FORM)
    assert answer.status_code == 302, text_of(answer)
    job = Job.objects.get()
    assert (job.name, job.payload, job.timezone, job.priority) == ("nightly", {"rows": 3}, "Europe/Berlin", 4)
    assert (job.max_attempts, job.starting_deadline, job.retry_jitter, job.origin) == (None, None, None, "admin")
    assert job.next_run_at is not None
    assert job.next_run_at > database_now()


def test_an_empty_form_offers_the_defaults_and_a_job_is_made_from_them(client: Client) -> None:
    form = client.get(f"{LIST}add/").context["adminform"].form
    offered = {field.name: field.value() for field in form if field.value() is not None and field.name != "coming"}
    assert (offered["catch_up"], offered["timezone"]) == ("latest", "UTC")
    assert not {"time_limit", "priority", "queue"} & offered.keys(), "these are the task's to say"
    typed = {name: value for name, value in offered.items() if value is not False}
    client.post(f"{LIST}add/", typed | {"name": "plain", "task": "tests.report", "payload": "{}"})
    job = Job.objects.get()
    assert (job.misfire_grace, job.catch_up_limit, job.jitter, job.enabled) == (60, 100, 0, True)
    assert (job.time_limit, job.priority, job.queue) == (900, 4, "default")


def test_what_a_new_form_leaves_empty_is_as_the_task_declares_and_an_old_one_asks_for_it(client: Client) -> None:
    empty = {"queue": "", "priority": "", "time_limit": ""}
    with known_tasks(options(queue="slow", priority=7, time_limit=1800)):
        client.post(f"{LIST}add/", FORM | empty)
        job = Job.objects.get()
        assert (job.queue, job.priority, job.time_limit) == ("slow", 7, 1800)
        answer = client.post(f"{LIST}{job.pk}/change/", FORM | empty | {"expected_version": "1"})
    assert set(answer.context["adminform"].form.errors) == set(empty)


def test_every_fault_stands_beside_its_field_in_the_words_of_the_code(client: Client) -> None:
    bad = FORM | {
        "name": "", "task": "tests.greet", "schedule": "99 * * * *", "timezone": "Mars/Base", "time_limit": "0",
        "priority": "high", "max_attempts": "0", "retry_backoff": "nan",
    }  # fmt: skip
    answer = client.post(f"{LIST}add/", bad)
    assert answer.status_code == 200
    errors = answer.context["adminform"].form.errors
    fields = {
        "name": "", "task": "tests.greet", "payload": {"rows": 3}, "schedule": "99 * * * *", "timezone": "Mars/Base",
        "time_limit": 0, "priority": "high", "max_attempts": 0, "retry_backoff": float("nan"),
    }  # fmt: skip
    assert errors == {fault.field: [fault.reason] for fault in define.validate(fields)}
    assert set(errors) == set(fields) - {"task"}  # its payload does not fit it
    assert not Job.objects.exists()


def test_arguments_that_are_no_json_are_told_and_kept_in_the_form(client: Client) -> None:
    answer = client.post(f"{LIST}add/", FORM | {"payload": "{<b>"})
    assert answer.context["adminform"].form.errors["payload"][0].startswith("is not JSON")
    assert "{&lt;b&gt;" in text_of(answer)


def test_a_form_that_was_open_while_others_edited_is_refused_and_overwrites_nothing(client: Client) -> None:
    job = a_job()
    client.get(page(job))
    define.update(job.pk, {"priority": 9, "schedule": "@hourly"})
    answer = client.post(page(job), FORM | {"expected_version": str(job.version)})
    assert "was changed by somebody else meanwhile" in text_of(answer)
    after = Job.objects.get()
    assert (after.name, after.priority, after.schedule) == ("report", 9, "@hourly")


def test_a_form_without_a_version_is_refused(client: Client) -> None:
    job = a_job()
    assert "was changed by somebody else" in text_of(client.post(page(job), FORM))
    assert Job.objects.get().name == "report"


def test_a_change_that_overtakes_between_check_and_save_is_told(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job()

    def overtaken(*args: object, **kwargs: object) -> None:
        raise define.VersionConflict("report", 2, 1)

    monkeypatch.setattr(define, "update", overtaken)
    answer = client.post(page(job), FORM | {"expected_version": "1"}, follow=True)
    assert "was changed by somebody else" in text_of(answer)


def test_saving_a_form_leaves_the_cursor_unless_the_schedule_changed(client: Client) -> None:
    client.post(f"{LIST}add/", FORM)
    job = Job.objects.get()
    behind = database_now()
    Job.objects.update(next_run_at=behind)
    saved = client.post(page(job), FORM | {"expected_version": "1", "priority": "7"})
    assert saved.status_code == 302, saved.context["adminform"].form.errors
    assert Job.objects.get().next_run_at == behind
    client.post(page(job), FORM | {"expected_version": "2", "priority": "7", "schedule": "0 3 * * *"})
    after = Job.objects.get().next_run_at
    assert after is not None
    assert after > behind


def test_the_form_shows_the_next_ten_slots_in_both_zones_and_in_english(client: Client) -> None:
    job = a_job(schedule="30 9 * * 1", timezone="Europe/Berlin")
    said = text_of(client.get(page(job)))
    assert "At 09:30, on Monday, Europe/Berlin time." in said
    assert said.count("09:30:00 CE") == 10
    assert said.count(":30:00 UTC") == 10


def test_a_refused_form_shows_the_preview_of_what_was_typed(client: Client) -> None:
    said = text_of(client.post(f"{LIST}add/", FORM | {"name": "", "schedule": "15 4 * * *"}))
    assert "At 04:15, every day, Europe/Berlin time." in said


def test_the_preview_answers_as_json(client: Client) -> None:
    found = client.get(reverse("admin:scheduler_app_job_preview"), {"schedule": "@hourly", "timezone": "UTC"}).json()
    assert (len(found["slots"]), found["faults"]) == (10, [])
    asked = {"schedule": "99 * * * *", "timezone": "Mars/Base", "gap": "jump"}
    assert len(client.get(reverse("admin:scheduler_app_job_preview"), asked).json()["faults"]) >= 2
    every = a_job(schedule="@every 1h")
    found = client.get(
        reverse("admin:scheduler_app_job_preview"), {"job": str(every.pk), "schedule": "@every 1h"}
    ).json()
    assert found["slots"][0]["utc"] == f"{every.next_run_at:%Y-%m-%d %H:%M:%S} UTC"


def test_the_preview_is_for_those_who_may_see_jobs() -> None:
    client = Client()
    assert client.get(reverse("admin:scheduler_app_job_preview")).status_code == 302
    client.force_login(User.objects.create_user("bob", is_staff=True))
    assert client.get(reverse("admin:scheduler_app_job_preview")).status_code == 403


def test_what_code_declares_can_only_be_changed_in_code(client: Client) -> None:
    job = a_job(origin="code")
    said = text_of(client.get(page(job)))
    assert "declared in code" in said
    assert 'name="schedule"' not in said
    client.post(page(job), FORM | {"expected_version": "1", "priority": "9", "max_attempts": "2"})
    after = Job.objects.get()
    assert (after.name, after.schedule, after.priority, after.max_attempts) == ("report", "0 9 * * *", 4, 2)


def test_the_buttons_ask_first_and_act_on_post_only(client: Client) -> None:
    job = a_job()
    for verb in ("run", "pause", "resume", "remove"):
        assert "<form" in text_of(client.get(page(job, verb)))
    assert not JobRun.objects.exists()
    assert Job.objects.values().get() == Job.objects.filter(pk=job.pk).values().get()
    assert Job.objects.get().version == job.version
    answer = client.post(
        page(job, "run"), {"_form_submitted": "True", "payload": '{"rows": 1}'}, headers={"HX-Request": "true"}
    )
    assert answer["HX-Redirect"] == page(job)
    run = JobRun.objects.get()
    assert (run.payload, run.trigger, run.triggered_by) == ({"rows": 1}, "manual", "ann")
    client.post(page(job, "pause"), {"_form_submitted": "True", "reason": "moving", "until": "2099-01-01T00:00"})
    assert (Job.objects.get().pause_reason, Job.objects.get().paused_until.year) == ("moving", 2099)  # type: ignore[union-attr]
    client.post(page(job, "resume"), {"_form_submitted": "True"})
    assert Job.objects.get().paused_until is None
    client.post(page(job, "remove"), {"_form_submitted": "True"})
    assert Job.objects.get().deleted_at is not None


def test_a_refused_button_says_why(client: Client) -> None:
    job = a_job()
    answer = client.post(page(job, "run"), {"_form_submitted": "True", "payload": "[1"}, follow=True)
    assert "payload: is not JSON" in text_of(answer)
    answer = client.post(page(job, "run"), {"_form_submitted": "True", "payload": '{"year": 1}'}, follow=True)
    assert "payload: does not fit" in text_of(answer)


def test_buttons_need_their_permission() -> None:
    client = Client()
    client.force_login(User.objects.create_user("bob", is_staff=True))
    job = a_job()
    for verb in ("run", "pause", "resume", "remove"):
        assert client.post(page(job, verb), {"_form_submitted": "True"}).status_code == 403
    assert not JobRun.objects.exists()


def test_the_list_acts_on_several_jobs_and_tells_each_refusal(client: Client) -> None:
    good, bad = a_job(), a_job(name="bad", concurrency_policy="forbid")
    a_run(bad, status="running")
    chosen = {"_selected_action": [good.pk, bad.pk]}
    said = text_of(client.post(LIST, chosen | {"action": "run_selected"}, follow=True))
    assert "Started report." in said
    assert "bad: concurrency_policy: forbid leaves no room" in said
    client.post(LIST, chosen | {"action": "pause_selected"})
    assert Job.objects.filter(paused_until__isnull=False).count() == 2
    client.post(LIST, chosen | {"action": "resume_selected"})
    assert Job.objects.filter(paused_until__isnull=False).count() == 0
    client.post(LIST, chosen | {"action": "delete_softly"})
    assert Job.objects.filter(deleted_at__isnull=False).count() == 2
    assert "report" not in text_of(client.get(LIST)).partition("result_list")[2]


def test_the_list_shows_state_next_slot_and_last_run(client: Client) -> None:
    a_run(a_job(timezone="Asia/Tokyo"), status="dead")
    paused = define.pause(a_job(name="paused one").pk, "")
    Job.objects.filter(pk=a_job(name="broken").pk).update(
        quarantined_at=database_now(), quarantine_reason="no such zone"
    )
    said = text_of(client.get(LIST))
    for word in ("09:00:00 JST", "00:00:00 UTC", "dead", "paused", "quarantined", "enabled"):
        assert word in said
    assert "paused one" in text_of(client.get(f"{LIST}?state=paused"))
    assert paused.name not in text_of(client.get(f"{LIST}?state=quarantined")).partition("result_list")[2]


def test_a_quarantined_job_with_a_broken_zone_still_has_its_page(client: Client) -> None:
    job = a_job()
    Job.objects.update(
        timezone="Mars/Base", task="tests.gone", quarantined_at=database_now(), quarantine_reason="no zone"
    )
    said = text_of(client.get(page(job)))
    assert "Quarantined: no zone" in said
    assert "is not a known IANA time zone" in said
    assert "tests.gone (unknown here)" in said


def test_a_deleted_job_can_be_looked_at_but_not_changed(client: Client) -> None:
    job = define.delete(a_job().pk)
    assert job.name in text_of(client.get(page(job)))
    assert client.post(page(job), FORM | {"expected_version": str(job.version)}).status_code == 403


def test_what_users_wrote_is_escaped_everywhere(client: Client) -> None:
    evil = "<script>alert(1)</script>"
    job = a_job(name=evil)
    run = a_run(job, status="dead", last_error=evil, payload={"month": evil}, result=evil, triggered_by=evil)
    Job.objects.update(pause_reason=evil, enabled=False)
    for address in (LIST, page(job), "/admin/scheduler_app/jobrun/", f"/admin/scheduler_app/jobrun/{run.pk}/change/"):
        said = text_of(client.get(address))
        assert evil not in said, address
        assert "&lt;script&gt;" in said, address


def test_the_list_of_many_jobs_needs_a_bounded_number_of_queries(
    client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        a_job(name=f"job {number}")
    client.get(LIST)
    with django_assert_max_num_queries(12):
        client.get(LIST)
