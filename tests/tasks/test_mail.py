"""Mails: what is sent, and which refusals are final."""

from __future__ import annotations

from smtplib import SMTPDataError, SMTPRecipientsRefused, SMTPServerDisconnected
from typing import Any
from uuid import uuid4

import pytest
from django.core import mail

from scheduler_app.core.errors import GiveUp
from scheduler_app.testing import run_as
from tasks.mail import send_mail

pytestmark = pytest.mark.django_db


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def send(*_: Any, **__: Any) -> int:
        raise error

    monkeypatch.setattr(mail.EmailMultiAlternatives, "send", send)


def test_a_mail_has_both_parts_and_the_runs_id(settings: Any) -> None:
    settings.DEFAULT_FROM_EMAIL = "Jobs <jobs@example.org>"
    run_id = uuid4()
    done = run_as(send_mail, ["ann@example.org", "bob@example.org"], "Hello", "Text", "<p>Text</p>", run_id=run_id)
    assert done == {"message_id": f"<{run_id}@example.org>", "recipients": 2}
    sent = mail.outbox[0]
    assert isinstance(sent, mail.EmailMultiAlternatives)
    assert (sent.to, sent.subject, sent.body) == (["ann@example.org", "bob@example.org"], "Hello", "Text")
    assert sent.alternatives[0][1] == "text/html"
    assert sent.message()["Message-ID"] == f"<{run_id}@example.org>"


def test_a_mail_that_the_server_took_is_not_sent_again_by_a_later_attempt() -> None:
    run_id = uuid4()
    run_as(send_mail, "ann@example.org", "Hello", "Text", run_id=run_id)
    run_as(send_mail, "ann@example.org", "Hello", "Text", run_id=run_id, attempt=2)
    assert len(mail.outbox) == 1


@pytest.mark.parametrize(
    "error",
    [
        SMTPRecipientsRefused({"ann@example.org": (550, b"no such user")}),
        SMTPDataError(554, b"spam"),
    ],
)
def test_what_the_server_refuses_for_good_is_given_up(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    failing(monkeypatch, error)
    with pytest.raises(GiveUp, match="refuses"):
        run_as(send_mail, "ann@example.org", "Hello", "Text")


@pytest.mark.parametrize(
    "error",
    [
        SMTPRecipientsRefused({"ann@example.org": (450, b"greylisted")}),
        SMTPDataError(451, b"later"),
        SMTPServerDisconnected("gone"),
        TimeoutError("slow"),
    ],
)
def test_what_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    failing(monkeypatch, error)
    with pytest.raises(type(error)):
        run_as(send_mail, "ann@example.org", "Hello", "Text")


@pytest.mark.parametrize(
    "arguments",
    [
        ("no address", "Hello", "Text"),
        ([], "Hello", "Text"),
        (["ann@example.org"] * 51, "Hello", "Text"),
        ("ann@example.org\nBcc: bob@example.org", "Hello", "Text"),
        ("ann@example.org", "Hello\nBcc: bob@example.org", "Text"),
        ("ann@example.org", "", "Text"),
        ("ann@example.org", "x" * 501, "Text"),
        ("ann@example.org", "Hello", "x" * 200_001),
    ],
)
def test_what_is_no_mail_is_given_up(arguments: Any) -> None:
    with pytest.raises(GiveUp):
        run_as(send_mail, *arguments)
    assert mail.outbox == []
