"""The form of a job. It judges nothing itself: what is typed goes to `lifecycle`, which refuses in the same words
everywhere, and which a form that was open for an hour cannot make overwrite what others changed.
"""

from __future__ import annotations

import json
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from scheduler_app.admin.preview import PreviewWidget
from scheduler_app.conf import conf
from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.define import DECLARED_BY_TASK, VersionConflict
from scheduler_app.lifecycle.rules import FIELDS, payload_from_text
from scheduler_app.lifecycle.validate import validate
from scheduler_app.models import Job


class Number(forms.CharField):
    """Passes on the number that was typed, or what was typed instead of one; empty is None."""

    def __init__(self, cast: type[int] | type[float], placeholder: str = "", **options: Any) -> None:
        attrs = {"inputmode": "numeric" if cast is int else "decimal", "placeholder": placeholder}
        super().__init__(required=False, widget=UnfoldAdminTextInputWidget(attrs=attrs), **options)
        self.cast = cast

    def to_python(self, value: Any) -> Any:
        text = str(super().to_python(value)).strip()
        try:
            return self.cast(text) if text else None
        except ValueError:
            return text

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(initial != self.to_python(data))


class Arguments(forms.CharField):
    """JSON as it was typed; a fault is told in the words of the other doors."""

    def to_python(self, value: Any) -> Any:
        try:
            return payload_from_text(value or "")
        except InvalidDefinition as error:
            raise ValidationError(error.reason) from None

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(payload_from_text(data or "") != initial)
        except InvalidDefinition:
            return True


class ZoneWidget(UnfoldAdminTextInputWidget):
    """A text field that offers the known zones."""

    template_name = "scheduler_app/admin/zones.html"

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context(name, value, attrs)
        return context | {"zones": sorted(zone for zone in available_timezones() if "/" in zone or zone == "UTC")}


class JobForm(forms.ModelForm):  # type: ignore[type-arg]
    """Fields of a job; `expected_version` is the version that the person looks at."""

    expected_version = forms.IntegerField(required=False, widget=forms.HiddenInput)
    coming = forms.CharField(required=False, label="Next ten slots", widget=PreviewWidget)
    name = forms.CharField(required=False, widget=UnfoldAdminTextInputWidget)
    task = forms.ChoiceField(required=False, widget=UnfoldAdminSelectWidget)
    payload = Arguments(
        required=False, label="Arguments", help_text="A JSON object: the task's keyword arguments.",
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4, "spellcheck": "false"}),
    )  # fmt: skip
    schedule = forms.CharField(
        required=False, widget=UnfoldAdminTextInputWidget(attrs={"spellcheck": "false", "autocomplete": "off"}),
        help_text="Five cron fields (0 9 * * 1-5), @daily, @every 90s, or @at 2026-12-01T09:00:00Z. Empty: on demand.",
    )  # fmt: skip
    timezone = forms.CharField(
        required=False, label="Time zone", widget=ZoneWidget(attrs={"list": "everyslot-zones", "autocomplete": "off"})
    )
    queue = forms.ChoiceField(required=False, widget=UnfoldAdminSelectWidget)
    priority = Number(int, "as the task declares", help_text="0 to 9, higher first.")
    starting_deadline = Number(
        int, "as the task declares", help_text="Seconds after which a run that has not started is skipped."
    )
    catch_up_limit = Number(int, help_text="Missed slots that run at most.")
    misfire_grace = Number(int, help_text="Seconds within which a late slot does not count as missed.")
    jitter = Number(int, help_text="Seconds by which a start may be moved back, evenly over the slots.")
    max_runs = Number(int, "no limit", help_text="Runs of the schedule in all. Empty: no limit.")
    max_attempts = Number(int, "as the task declares", help_text="Attempts of one run.")
    retry_backoff = Number(float, "as the task declares", help_text="Seconds before the second attempt, then doubling.")
    retry_backoff_max = Number(float, "as the task declares", help_text="Seconds between attempts at most.")
    retry_jitter = forms.NullBooleanField(
        required=False,
        widget=UnfoldAdminSelectWidget(choices=[("", "as the task declares"), ("true", "Yes"), ("false", "No")]),
        help_text="Whether each delay is drawn at random between 0 and its bound.",
    )  # fmt: skip
    time_limit = Number(int, "as the task declares", help_text="Seconds after which an attempt is killed.")

    class Meta:
        model = Job
        fields = FIELDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        saved = self.instance if self.instance.pk else None
        for name in FIELDS:
            if name in self.fields and name not in self.initial and (saved or name not in DECLARED_BY_TASK):
                self.initial[name] = Job._meta.get_field(name).get_default()  # type: ignore[union-attr]
        if "task" in self.fields:
            known = [(each.name, each.name) for each in catalog.all_tasks()]
            self._offer("task", [("", "Select a task"), *known])
        if "queue" in self.fields:
            undecided = [] if saved else [("", "as the task declares")]
            self._offer("queue", [*undecided, *((name, name) for name in conf().queues)])
        self.fields["expected_version"].initial = saved.version if saved else None
        widget = self.fields["coming"].widget
        widget.job = saved
        widget.fields = {
            name: self[name].value() or ""
            for name in ("name", "schedule", "timezone", "gap", "fold")
            if name in self.fields
        }

    def _offer(self, name: str, choices: list[tuple[str, str]]) -> None:
        """The choices, and what the job has already where that became unknown."""
        current = getattr(self.instance, name)
        if current and current not in dict(choices):
            choices.append((current, f"{current} (unknown here)"))
        field: Any = self.fields[name]
        field.choices = choices

    def _post_clean(self) -> None:
        """Ask the one judge instead of the model's own validators."""
        saved = self.instance if self.instance.pk else None
        current = Job.objects.get(pk=saved.pk) if saved else None
        expected = self.cleaned_data.get("expected_version")
        if current and current.version != expected:
            self.add_error(None, str(VersionConflict(current.name, current.version, expected or 0)))
            return
        for fault in validate(self.definition(), current):
            self.add_error(fault.field if fault.field in self.fields else None, fault.reason)

    def definition(self) -> dict[str, Any]:
        """The fields of the job as they were typed, without those that have a fault or are left to the task."""
        left = () if self.instance.pk else DECLARED_BY_TASK
        typed = {name: self.cleaned_data[name] for name in FIELDS if name in self.cleaned_data}
        return {name: value for name, value in typed.items() if name not in left or value not in (None, "")}
