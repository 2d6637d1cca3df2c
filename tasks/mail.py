"""Sending a mail, once a run.

The mail server is spoken to inside the step's transaction, which no other task does: only so can two attempts of a run
never send at the same time. EMAIL_TIMEOUT (20 s) bounds it, and no row but the step's own is locked meanwhile.
"""

from __future__ import annotations

from email.utils import parseaddr
from smtplib import SMTPDataError, SMTPRecipientsRefused, SMTPSenderRefused
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import BadHeaderError, EmailMultiAlternatives
from django.core.validators import validate_email

from scheduler_app import current_run, durable_task
from scheduler_app.core.errors import GiveUp

MAX_RECIPIENTS = 50
MAX_SUBJECT = 500
MAX_TEXT = 200_000  # characters of text and of html


@durable_task(time_limit=120)
def send_mail(to: str | list[str], subject: str, text: str, html: str = "") -> dict[str, Any]:
    """Send a mail to up to 50 addresses, from DEFAULT_FROM_EMAIL.

    A run that has sent its mail does not send it again. Should the process die between the mail server's answer and
    our note of it, the next attempt sends the same Message-ID, by which receivers know a copy. Returns `message_id` and
    `recipients`. Gives up on bad addresses and on what the mail server refuses for good; other faults are tried again.
    """
    recipients = _recipients(to)
    if not subject or len(subject) > MAX_SUBJECT or len(text) > MAX_TEXT or len(html) > MAX_TEXT:
        raise GiveUp(f"a mail needs a subject of at most {MAX_SUBJECT} and a text of at most {MAX_TEXT} characters")
    return dict(current_run().step("sent", _send, recipients, subject, text, html))


def _send(recipients: list[str], subject: str, text: str, html: str) -> dict[str, Any]:
    sender = settings.DEFAULT_FROM_EMAIL
    domain = parseaddr(sender)[1].rpartition("@")[2] or "localhost"
    message_id = f"<{current_run().idempotency_key}@{domain}>"
    mail = EmailMultiAlternatives(subject, text, sender, recipients, headers={"Message-ID": message_id})
    if html:
        mail.attach_alternative(html, "text/html")
    try:
        mail.send()
    except BadHeaderError as error:
        raise GiveUp(f"the mail cannot be written: {error}") from error
    except SMTPRecipientsRefused as error:
        if all(code >= 500 for code, _ in error.recipients.values()):
            raise GiveUp(f"the mail server refuses the recipients: {', '.join(error.recipients)}") from error
        raise
    except (SMTPSenderRefused, SMTPDataError) as error:
        if error.smtp_code >= 500:
            raise GiveUp(f"the mail server refuses the mail: {error.smtp_code}") from error
        raise
    return {"message_id": message_id, "recipients": len(recipients)}


def _recipients(to: str | list[str]) -> list[str]:
    given = [to] if isinstance(to, str) else list(to)
    if not 0 < len(given) <= MAX_RECIPIENTS:
        raise GiveUp(f"a mail has 1 to {MAX_RECIPIENTS} recipients, not {len(given)}")
    for address in given:
        try:
            validate_email(address)
        except ValidationError:
            raise GiveUp(f"{str(address)[:100]!r} is not a mail address") from None
    return given
