"""What the buttons of a page ask before they act. They act on POST only, so that no link can start anything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.forms import ActionForm, BaseDialogForm
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from scheduler_app.core.errors import EveryslotError


class PauseForm(BaseDialogForm):
    reason = forms.CharField(max_length=500, required=False, widget=UnfoldAdminTextInputWidget)
    until = forms.DateTimeField(
        required=False,
        label="Until (UTC)",
        help_text="Empty: until somebody resumes it.",
        widget=UnfoldAdminTextInputWidget(attrs={"type": "datetime-local", "step": "1"}),
        input_formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"],
    )

    def clean_until(self) -> Any:
        until = self.cleaned_data["until"]
        return until and until.astimezone(UTC)


class RunForm(BaseDialogForm):
    payload = forms.CharField(
        required=False,
        label="Other arguments",
        help_text="A JSON object. Empty: the job's own arguments.",
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
    )


class RedriveForm(BaseDialogForm):
    reason = forms.CharField(max_length=500, required=False, label="What was mended", widget=UnfoldAdminTextInputWidget)


class ReasonActionForm(ActionForm):
    """Beside the list's action: why, for the record."""

    reason = forms.CharField(
        max_length=500,
        required=False,
        label="",
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "Reason", "aria-label": "Reason"}),
    )


def given_reason(request: HttpRequest) -> str:
    """What was typed into the form above."""
    return request.POST.get("reason", "")[:500]


def act(request: HttpRequest, target: str, step: Callable[[], str]) -> HttpResponse:
    """Do the step, say what it said or why it refused, and go to `target` (an address of ours)."""
    try:
        messages.success(request, step())
    except EveryslotError as error:
        messages.error(request, str(error))
    if request.headers.get("HX-Request"):
        return HttpResponse(headers={"HX-Redirect": target})
    return HttpResponseRedirect(target)
