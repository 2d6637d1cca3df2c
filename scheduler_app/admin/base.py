"""What all pages of ours share."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.views.main import ERROR_FLAG
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.admin import ModelAdmin as UnfoldModelAdmin


class ModelAdmin(UnfoldModelAdmin):
    """A list whose address holds what PostgreSQL cannot compare is shown unfiltered, as Django does for bad filters."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if any("\x00" in value for values in request.GET.lists() for value in (values[0], *values[1])):
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")
        return super().changelist_view(request, extra_context)
