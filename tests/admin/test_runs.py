"""The pages of runs, dead letters, workers and terms: they show, and people decide on cancelling and redriving."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from scheduler_app.models import Attempt, DeadLetter, JobRun, Term, Worker
from scheduler_app.store.define import database_now
from tests.support.definitions import a_job, a_run, known_tasks, options

pytestmark = pytest.mark.django_db
LIST = "/admin/scheduler_app/jobrun/"
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options()):
        yield


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    return client


def page(run: JobRun, verb: str = "change") -> str:
    return f"{LIST}{run.pk}/{verb}/"


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


def rows_of(answer: Any) -> list[JobRun]:
    return list(answer.context["cl"].result_list)


def test_the_list_is_newest_first_and_counts_nothing(client: Client) -> None:
    runs = [a_run(a_job(name=f"job {number}"), status="succeeded") for number in range(3)]
    with CaptureQueriesContext(
        connection,
    ) as seen:
        answer = client.get(LIST)
    assert rows_of(answer) == runs[::-1]
    of_runs = [query["sql"] for query in seen.captured_queries if "scheduler_app_jobrun" in query["sql"]]
    assert of_runs
    assert not [sql for sql in of_runs if "COUNT(" in sql.upper()]
    assert "25000 results" not in text_of(answer)


def test_the_list_does_not_read_what_is_large(client: Client) -> None:
    a_run(status="succeeded")
    with CaptureQueriesContext(connection) as seen:
        client.get(LIST)
    listed = [query["sql"] for query in seen.captured_queries if 'FROM "scheduler_app_jobrun"' in query["sql"]]
    assert listed
    assert not [sql for sql in listed if '"last_error"' in sql or '"result"' in sql]


def test_filters_and_search(client: Client) -> None:
    job = a_job()
    dead = a_run(job, status="dead")
    other = a_run(task="tests.other", status="succeeded", trigger="code")
    assert rows_of(client.get(f"{LIST}?status__exact=dead")) == [dead]
    assert rows_of(client.get(f"{LIST}?task=tests.other")) == [other]
    assert rows_of(client.get(f"{LIST}?job__id__exact={job.pk}")) == [dead]
    assert rows_of(client.get(f"{LIST}?q={other.pk}")) == [other]
    assert rows_of(client.get(f"{LIST}?q=repo")) == [dead]
    assert rows_of(client.get(f"{LIST}?q=0192d5b6-0000-7000-8000-000000000000")) == []


def test_nonsense_in_the_address_is_no_error_of_the_server(client: Client) -> None:
    for address in (
        f"{LIST}?p=99999",
        f"{LIST}?status__exact=x",
        f"{LIST}no-id/change/",
        f"{LIST}?q=%00",
        f"{LIST}?nope=1",
    ):
        assert client.get(address).status_code in (200, 302, 400), address


def test_a_run_shows_every_attempt_with_its_error_as_text(client: Client) -> None:
    run = a_run(a_job(), status="dead", attempts=2, last_error=EVIL, result={"a": EVIL}, args=[EVIL])
    for number in (1, 2):
        Attempt.objects.create(
            run_id=run.pk, number=number, started_at=database_now(), outcome="failed", error=f"{EVIL} {number}",
            traceback=f"Traceback\n{EVIL}",
        )  # fmt: skip
    said = text_of(client.get(page(run)))
    assert "Attempt 1" in said
    assert "&lt;img src=x onerror=alert(1)&gt; 2" in said
    assert EVIL not in said


def test_a_run_cannot_be_edited_or_deleted_by_hand(client: Client) -> None:
    run = a_run()
    assert client.post(page(run), {"status": "succeeded"}).status_code == 403
    assert client.post(page(run, "delete"), {"post": "yes"}).status_code == 403
    assert client.get(f"{LIST}add/").status_code == 403


def test_redrive_and_cancel_from_a_runs_page(client: Client) -> None:
    run = a_run(status="dead", attempts=5, max_attempts=5)
    assert "Redrive" in text_of(client.get(page(run)))
    answer = client.post(page(run, "redrive"), {"_form_submitted": "True", "reason": "mended"}, follow=True)
    assert "queued again" in text_of(answer)
    run.refresh_from_db()
    assert (run.status, run.max_attempts) == ("queued", 10)
    client.post(page(run, "cancel"), {"_form_submitted": "True"})
    run.refresh_from_db()
    assert run.status == "cancelled"
    done = a_run(status="succeeded")
    assert "only dead and cancelled" in text_of(
        client.post(page(done, "redrive"), {"_form_submitted": "True"}, follow=True)
    )
    assert "the run has ended" in text_of(client.post(page(done, "cancel"), {"_form_submitted": "True"}, follow=True))


def test_a_page_offers_only_what_the_state_allows(client: Client) -> None:
    wanted = {
        "queued": {"cancel"},
        "running": {"cancel"},
        "dead": {"redrive"},
        "cancelled": {"redrive"},
        "succeeded": set(),
    }
    for status, verbs in wanted.items():
        run = a_run(status=status)
        said = text_of(client.get(page(run)))
        assert {verb for verb in ("cancel", "redrive") if page(run, verb) in said} == verbs, status


def test_many_runs_are_redriven_or_cancelled_from_the_list(client: Client) -> None:
    runs = [a_run(status="dead") for _ in range(3)] + [a_run(status="succeeded")]
    chosen = {"_selected_action": [str(run.pk) for run in runs]}
    assert "3 runs are queued again." in text_of(
        client.post(LIST, chosen | {"action": "redrive_selected"}, follow=True)
    )
    assert "3 runs are cancelled" in text_of(client.post(LIST, chosen | {"action": "cancel_selected"}, follow=True))


def test_who_may_only_look_decides_nothing() -> None:
    client = Client()
    bob = User.objects.create_user("bob", is_staff=True)
    bob.user_permissions.add(Permission.objects.get(codename="view_jobrun"))
    client.force_login(bob)
    run = a_run(status="dead")
    said = text_of(client.get(page(run)))
    assert page(run, "redrive") not in said
    assert client.post(page(run, "redrive"), {"_form_submitted": "True"}).status_code == 403
    client.post(LIST, {"_selected_action": [str(run.pk)], "action": "redrive_selected"})
    assert JobRun.objects.get().status == "dead"


def test_dead_letters_are_shown_and_redriven(client: Client) -> None:
    run = a_run(status="dead")
    letter = DeadLetter.objects.create(run_id=run.pk, attempt=1, task="tests.report", reason="failed", detail=EVIL)
    DeadLetter.objects.create(reason="malformed", body=EVIL, headers={"x": EVIL}, digest="d")
    for address in ("/admin/scheduler_app/deadletter/", f"/admin/scheduler_app/deadletter/{letter.pk}/change/"):
        said = text_of(client.get(address))
        assert str(run.pk) in said
        assert EVIL not in said
    chosen = {"_selected_action": [letter.pk], "action": "redrive_selected"}
    client.post("/admin/scheduler_app/deadletter/", chosen)
    letter.refresh_from_db()
    assert letter.decided_by == "ann"


def test_workers_and_the_leader_are_shown(client: Client) -> None:
    worker = Worker.objects.create(name="celery@one", lease=30, lock_key=1)
    a_run(status="running", locked_by=worker.pk)
    Term.objects.update_or_create(shard=0, defaults={"holder": "beat-1", "epoch": 7})
    assert "celery@one" in text_of(client.get("/admin/scheduler_app/worker/"))
    assert "on duty" in text_of(client.get(f"/admin/scheduler_app/worker/{worker.pk}/change/"))
    assert "beat-1" in text_of(client.get("/admin/scheduler_app/term/"))


def test_every_page_is_served_without_other_hosts(client: Client) -> None:
    run = a_run(a_job(), status="dead")
    for address in (
        "/admin/",
        LIST,
        page(run),
        "/admin/scheduler_app/job/",
        "/admin/scheduler_app/job/add/",
        "/admin/auth/user/",
    ):
        said = text_of(client.get(address))
        foreign = [
            part[:60]
            for part in said.split('"')
            if part.startswith(("http://", "https://", "//")) and "w3.org" not in part
        ]
        assert foreign == [], address


@pytest.mark.parametrize(
    "address",
    [
        "scheduler_app/job/?queue=%00", "scheduler_app/job/?q=a%00", "scheduler_app/jobrun/?status=%00",
        "scheduler_app/jobrun/?status__exact=x&%00=1", "scheduler_app/deadletter/?reason=%00", "auth/user/?q=%00",
    ],
)  # fmt: skip
def test_a_filter_that_no_database_can_compare_shows_the_list_without_it(client: Client, address: str) -> None:
    a_job()
    answer = client.get(f"/admin/{address}", follow=True)
    assert answer.status_code == 200
    assert answer.redirect_chain
