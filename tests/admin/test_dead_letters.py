"""Dead letters in the admin: who decides what about them, and why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from scheduler_app.models import DeadLetter, JobRun
from scheduler_app.store.define import database_now
from tests.admin.test_runs import client, text_of
from tests.support.definitions import a_run, known_tasks, options

__all__ = ["client"]
pytestmark = pytest.mark.django_db
LIST = "/admin/scheduler_app/deadletter/"


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options()):
        yield


def letters(number: int) -> list[DeadLetter]:
    runs = [a_run(status="dead") for _ in range(number)]
    return [DeadLetter.objects.create(run_id=run.pk, attempt=0, task=f"tests.n{n}", reason="failed") for n, run in
            enumerate(runs)]  # fmt: skip


def decide(client: Client, chosen: list[DeadLetter], action: str, **typed: str) -> str:
    posted = {"_selected_action": [str(each.pk) for each in chosen], "action": action} | typed
    return text_of(client.post(LIST, posted, follow=True))


def test_letters_are_discarded_with_the_reason_and_who_said_so(client: Client) -> None:
    first, second, other = letters(3)
    assert "2 dead letters are discarded" in decide(client, [first, second], "discard_selected", reason="rubbish")
    found = [(each.decision, each.decided_by, each.decision_reason) for each in DeadLetter.objects.order_by("id")]
    assert found == [("discarded", "ann", "rubbish")] * 2 + [("open", "", "")]
    assert "rubbish" in text_of(client.get(f"{LIST}{first.pk}/change/"))
    assert "0 dead letters are discarded" in decide(client, [first], "discard_selected", reason="again")
    assert JobRun.objects.filter(status="dead").count() == 3
    assert other.decision == "open"


def test_without_a_reason_nothing_is_discarded(client: Client) -> None:
    (letter,) = letters(1)
    assert "Nothing was discarded: the reason must say why" in decide(client, [letter], "discard_selected", reason=" ")
    letter.refresh_from_db()
    assert letter.decision == "open"


def test_a_redrive_keeps_its_reason(client: Client) -> None:
    (letter,) = letters(1)
    decide(client, [letter], "redrive_selected", reason="the disk has room")
    letter.refresh_from_db()
    assert (letter.decision, letter.decided_by, letter.decision_reason) == ("redriven", "ann", "the disk has room")


def test_the_list_is_filtered_by_decision(client: Client) -> None:
    for letter, column in zip(letters(3), ("redriven_at", "discarded_at", None), strict=True):
        if column:
            DeadLetter.objects.filter(pk=letter.pk).update(**{column: database_now()})
    for decision, task in (("redriven", "tests.n0"), ("discarded", "tests.n1"), ("open", "tests.n2")):
        said = text_of(client.get(f"{LIST}?decision={decision}"))
        assert [name for name in ("tests.n0", "tests.n1", "tests.n2") if name in said] == [task]
    assert client.get(f"{LIST}?decision=%00").status_code in (200, 302)


def test_who_may_only_look_discards_nothing() -> None:
    looker = Client()
    bob = User.objects.create_user("bob", is_staff=True)
    bob.user_permissions.add(Permission.objects.get(codename="view_deadletter"))
    looker.force_login(bob)
    (letter,) = letters(1)
    decide(looker, [letter], "discard_selected", reason="rubbish")
    letter.refresh_from_db()
    assert letter.decision == "open"
