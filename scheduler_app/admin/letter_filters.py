"""Filters of the list of dead letters."""

from __future__ import annotations

from typing import Any, Final

from django.contrib.admin import SimpleListFilter
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from scheduler_app.models import DeadLetter

DECISIONS: Final = {
    "open": Q(redriven_at=None, discarded_at=None),
    "redriven": Q(redriven_at__isnull=False),
    "discarded": Q(redriven_at=None, discarded_at__isnull=False),
}


class DecisionFilter(SimpleListFilter):
    """What a person has decided about a letter."""

    title = "decision"
    parameter_name = "decision"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name.capitalize()) for name in DECISIONS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> QuerySet[DeadLetter]:
        asked = DECISIONS.get(self.value() or "")
        return queryset if asked is None else queryset.filter(asked)
