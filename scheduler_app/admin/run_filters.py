"""Filters of the list of runs."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest

from scheduler_app.lifecycle import catalog
from scheduler_app.models import JobRun


class TaskFilter(SimpleListFilter):
    """Runs of one task; the names are those this process knows, since the table is too long to ask for them."""

    title = "task"
    parameter_name = "task"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = [options.name for options in catalog.all_tasks()]
        asked = self.used_parameters.get(self.parameter_name) or request.GET.get(self.parameter_name)
        return [(name, name) for name in ([*names, str(asked)] if asked and asked not in names else names)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[JobRun]) -> QuerySet[JobRun]:
        return queryset.filter(task=self.value()) if self.value() else queryset
