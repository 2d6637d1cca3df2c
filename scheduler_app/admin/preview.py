"""The preview of a schedule: what it means in English and its next ten slots, in the job's zone and in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import HttpRequest, JsonResponse
from django.urls import reverse_lazy

from scheduler_app.admin.cells import instant, weekday
from scheduler_app.lifecycle.timing import preview
from scheduler_app.lifecycle.validate import schedule_faults, with_changes
from scheduler_app.models import Job
from scheduler_app.store.define import database_now

SLOTS = 10
ASKED = ("name", "schedule", "timezone", "gap", "fold")


def look(job: Job | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a schedule with these fields would do, or every reason why it cannot be."""
    now = database_now()
    known = {name: str(fields[name]) for name in ASKED if name in fields}
    trial = with_changes(job, known, now)
    faults = schedule_faults(trial)
    if faults:
        return {"words": "", "faults": [str(fault) for fault in faults], "timezone": trial.timezone, "slots": []}
    coming = preview(trial, now, SLOTS)
    zone = trial.timezone
    slots = [{"local": f"{weekday(slot, zone)} {instant(slot, zone)}", "utc": instant(slot)} for slot in coming.slots]
    return {"words": coming.words, "faults": [], "timezone": zone, "slots": slots}


def preview_view(request: HttpRequest, model_admin: Any) -> JsonResponse:
    """`?schedule=…&timezone=…&name=…&gap=…&fold=…&job=<id>` -> words, faults, timezone, slots."""
    if not model_admin.has_view_permission(request):
        return JsonResponse({"faults": ["no permission"]}, status=403)
    asked = request.GET.get("job", "")
    job = Job.objects.filter(pk=int(asked)).first() if asked.isdecimal() and len(asked) < 19 else None
    answer = JsonResponse(look(job, request.GET))
    answer["Cache-Control"] = "no-store"
    return answer


class PreviewWidget(forms.Widget):
    """Shows a preview; it holds no value. Without JavaScript it shows what was last sent."""

    template_name = "scheduler_app/admin/preview.html"
    address = reverse_lazy("admin:scheduler_app_job_preview")

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.job: Job | None = None
        self.fields: Mapping[str, Any] = {}

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, value, attrs)
        context |= {"preview": look(self.job, self.fields), "address": self.address}
        return context | {"job": self.job.pk if self.job else ""}

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return True
