"""Terms: which beat leads."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.decorators import display

from scheduler_app.admin.cells import instant
from scheduler_app.admin.reading import ReadOnlyAdmin
from scheduler_app.models import Term


@admin.register(Term)
class TermAdmin(ReadOnlyAdmin):
    list_display = ("shard", "leader", "epoch", "acquired", "renewed", "transitions")
    ordering = ("shard",)
    fields = ("shard", "leader", "epoch", "acquired", "renewed", "duration", "transitions", "session_locked")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.fields

    @display(description="Leader")
    def leader(self, term: Term) -> str:
        return term.holder or "nobody"

    @display(description="Since")
    def acquired(self, term: Term) -> str:
        return instant(term.acquired_at)

    @display(description="Renewed")
    def renewed(self, term: Term) -> str:
        return instant(term.renewed_at)
