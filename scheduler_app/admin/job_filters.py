"""Filters of the list of jobs."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from scheduler_app.lifecycle.overview import JobState
from scheduler_app.models import Job
from scheduler_app.store.define import database_now

SHOWN = (JobState.ENABLED, JobState.PAUSED, JobState.QUARANTINED, JobState.DISABLED, JobState.DELETED)


class StateFilter(SimpleListFilter):
    """Jobs in one state; deleted ones are shown only when asked for."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value.capitalize()) for state in SHOWN]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        paused = Q(paused_until__gt=database_now())
        found = {
            JobState.ENABLED.value: Q(enabled=True, quarantined_at=None) & ~paused,
            JobState.PAUSED.value: Q(enabled=True) & paused,
            JobState.QUARANTINED.value: Q(quarantined_at__isnull=False),
            JobState.DISABLED.value: Q(enabled=False),
        }
        if self.value() == JobState.DELETED.value:
            return queryset.filter(deleted_at__isnull=False)
        return queryset.filter(found.get(self.value() or "", Q()), deleted_at=None)
