"""Dead letters: what the broker or a worker gave up, and what a person decided about it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from scheduler_app.admin.cells import NOTHING, block, instant, json_block, run_link
from scheduler_app.admin.reading import ReadOnlyAdmin
from scheduler_app.lifecycle.redrive import redrive
from scheduler_app.models import DeadLetter


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    list_display = ("task_name", "reason", "buried", "decision", "run")
    list_filter = ("reason",)
    ordering = ("-id",)
    actions = ("redrive_selected",)
    fields = (
        "task",
        "reason",
        "queue",
        "buried",
        "run",
        "attempt",
        "detail_text",
        "decision",
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
    def decision(self, letter: DeadLetter) -> str:
        if letter.redriven_at:
            return "redriven"
        return "discarded" if letter.discarded_at else "open"

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
        sent = redrive(runs, request.user.get_username())
        messages.success(request, f"{len(sent)} runs are queued again.")
