"""How single values are shown. Everything that users wrote goes through Django's escaping."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from scheduler_app.lifecycle.timing import shown_zone
from scheduler_app.models import Job, JobRun

NOTHING = "-"
RUN_LABELS = {
    "queued": "info",
    "running": "primary",
    "succeeded": "success",
    "dead": "danger",
    "cancelled": "default",
    "skipped": "warning",
}
JOB_LABELS = {
    "enabled": "success",
    "paused": "warning",
    "quarantined": "danger",
    "disabled": "default",
    "on demand": "info",
    "ended": "default",
    "deleted": "default",
}


def instant(moment: datetime | None, zone: str = "UTC") -> str:
    """An instant to the second, in a zone, with its name there."""
    if moment is None:
        return NOTHING
    local = moment.astimezone(shown_zone(zone))
    return f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()}"


def weekday(moment: datetime, zone: str) -> str:
    """The short name of the day on which an instant falls in a zone."""
    return f"{moment.astimezone(shown_zone(zone)):%a}"


def two_zones(moment: datetime | None, zone: str) -> SafeString | str:
    """An instant in a zone and, where that differs, in UTC below it."""
    if moment is None:
        return NOTHING
    here = instant(moment, zone)
    if shown_zone(zone).key == "UTC":
        return line(here)
    markup = '<span class="everyslot-line">{}<br><span class="everyslot-quiet">{}</span></span>'
    return format_html(markup, here, instant(moment))


def line(text: str) -> SafeString:
    """Text that is not broken over lines."""
    return format_html('<span class="everyslot-line">{}</span>', text)


def lasted(start: datetime | None, end: datetime | None) -> str:
    """How long something took, in the unit that reads well."""
    if start is None or end is None:
        return NOTHING
    seconds = (end - start).total_seconds()
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else str(timedelta(seconds=round(seconds)))


def block(text: str) -> SafeString | str:
    """Several lines of text as they are."""
    return format_html('<pre class="everyslot-block">{}</pre>', text) if text else NOTHING


def json_block(value: Any) -> SafeString | str:
    """A JSON value, indented."""
    return block(json.dumps(value, indent=2, ensure_ascii=False, cls=DjangoJSONEncoder))


def job_link(job: Job | None) -> SafeString | str:
    """A link to a job's page."""
    if job is None:
        return NOTHING
    return format_html(
        '<a class="everyslot-link" href="{}">{}</a>', reverse("admin:scheduler_app_job_change", args=[job.pk]), job.name
    )


def run_link(run_id: Any, text: str = "") -> SafeString | str:
    """A link to a run's page."""
    if not run_id:
        return NOTHING
    address = reverse("admin:scheduler_app_jobrun_change", args=[run_id])
    return format_html('<a class="everyslot-link" href="{}">{}</a>', address, text or str(run_id))


def runs_table(runs: list[JobRun]) -> SafeString:
    """The latest runs of a job."""
    return render_to_string("scheduler_app/admin/runs.html", {"runs": runs, "labels": RUN_LABELS})
