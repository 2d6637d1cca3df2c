"""What the settings' `UNFOLD` names by path: the sidebar and the icon. Links are shown to those who may follow them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse

PAGES = (
    ("Everyslot", (
        ("Jobs", "event_repeat", "scheduler_app", "job"),
        ("Runs", "play_circle", "scheduler_app", "jobrun"),
        ("Dead letters", "mail_off", "scheduler_app", "deadletter"),
        ("Workers", "memory", "scheduler_app", "worker"),
        ("Leader", "flag", "scheduler_app", "term"),
    )),
    ("Access", (
        ("Users", "person", "auth", "user"),
        ("Groups", "group", "auth", "group"),
    )),
)  # fmt: skip


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The groups of the sidebar."""
    return [
        {
            "title": title,
            "separator": title != PAGES[0][0],
            "items": [
                {"title": name, "icon": icon, "link": reverse(f"admin:{app}_{model}_changelist")}
                for name, icon, app, model in pages
                if request.user.has_perm(f"{app}.view_{model}")
            ],
        }
        for title, pages in PAGES
    ]


def favicon(request: HttpRequest) -> str:
    """The address of the icon."""
    return static("scheduler_app/favicon.svg")
