"""Dead letters: what the broker or a worker gave up, and what a person decided about it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from scheduler_app.admin.cells import NOTHING, block, instant, json_block, run_link
from scheduler_app.admin.dialogs import ReasonActionForm, given_reason
from scheduler_app.admin.letter_filters import DecisionFilter
from scheduler_app.admin.reading import ReadOnlyAdmin
from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.lifecycle.discard import discard
from scheduler_app.lifecycle.redrive import redrive
from scheduler_app.models import DeadLetter


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    list_display = ("task_name", "reason", "buried", "decided", "run")
    list_filter = (DecisionFilter, "reason")
    ordering = ("-id",)
    action_form = ReasonActionForm
    actions = ("redrive_selected", "discard_selected")
    fields = (
        "task",
        "reason",
        "queue",
        "buried",
        "run",
        "attempt",
        "detail_text",
        "decided",
        "decided_by",
        "decision_reason",
        "header_text",
        "body_text",
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.fields

    @display(description="Task")
    def task_name(self, letter: DeadLetter) -> str:
        return letter.task or "(a message that names no task)"

    @display(description="Buried")
    def buried(self, letter: DeadLetter) -> str:
        return instant(letter.buried_at)

    @display(description="Decision", label={"redriven": "success", "discarded": "default", "open": "warning"})
    def decided(self, letter: DeadLetter) -> str:
        return letter.decision

    @display(description="Run")
    def run(self, letter: DeadLetter) -> SafeString | str:
        return run_link(letter.run_id)

    @display(description="Detail")
    def detail_text(self, letter: DeadLetter) -> SafeString | str:
        return block(letter.detail)

    @display(description="Headers")
    def header_text(self, letter: DeadLetter) -> SafeString | str:
        return json_block(letter.headers) if letter.headers else NOTHING

    @display(description="Body")
    def body_text(self, letter: DeadLetter) -> SafeString | str:
        return block(letter.body)

    def has_decide_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("scheduler_app.change_jobrun"))

    @admin.action(description="Redrive their runs", permissions=["decide"])
    def redrive_selected(self, request: HttpRequest, letters: QuerySet[DeadLetter]) -> None:
        runs = [letter.run_id for letter in letters if letter.run_id]
        sent = redrive(runs, request.user.get_username(), reason=given_reason(request))
        messages.success(request, f"{len(sent)} runs are queued again.")

    @admin.action(description="Discard (needs the reason)", permissions=["decide"])
    def discard_selected(self, request: HttpRequest, letters: QuerySet[DeadLetter]) -> None:
        try:
            done = discard([letter.pk for letter in letters], request.user.get_username(), given_reason(request))
        except InvalidDefinition as refused:
            messages.error(request, f"Nothing was discarded: the reason {refused.reason}.")
        else:
            messages.success(request, f"{len(done)} dead letters are discarded.")
