"""Runs: what happened, with every attempt and its error; cancel and redrive."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.decorators import action, display
from unfold.enums import ActionVariant

from scheduler_app.admin.cells import (
    NOTHING,
    RUN_LABELS,
    block,
    instant,
    job_link,
    json_block,
    lasted,
    line,
    run_link,
    two_zones,
)
from scheduler_app.admin.dialogs import RedriveForm, act
from scheduler_app.admin.reading import ReadOnlyAdmin
from scheduler_app.admin.run_filters import TaskFilter
from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.lifecycle.cancel import cancel
from scheduler_app.lifecycle.loading import load_tasks
from scheduler_app.lifecycle.redrive import redrive
from scheduler_app.models import Attempt, JobRun

LARGE = ("args", "payload", "result", "last_error", "canvas")


@admin.register(JobRun)
class JobRunAdmin(ReadOnlyAdmin):
    """Lists by `seq`, newest first; what is large is read on a run's own page only."""

    list_display = ("short_id", "what", "state", "slot", "tried", "took", "reason")
    list_display_links = ("short_id",)
    list_filter = ("status", ("job", AutocompleteSelectFilter), TaskFilter, "trigger")
    list_filter_submit = True
    list_select_related = ("job",)
    search_fields = ("id",)
    search_help_text = "The id of a run, or a part of a job's name"
    ordering = ("-seq",)
    actions = ("redrive_selected", "cancel_selected")
    actions_detail = ("redrive_run", "cancel_run")
    fieldsets = (
        (None, {"fields": ("shown_id", "job_page", "task", "state", "reason", "error")}),
        ("Attempts", {"fields": ("tried", "attempts_table")}),
        (
            "Times",
            {
                "fields": (
                    "slot_twice", "created", "not_before", "dispatched", "started", "finished", "expires",
                    "asked_to_stop", "unknown_since",
                )
            },
        ),
        ("Arguments and result", {"fields": ("positional", "arguments", "outcome", "progress_text")}),
        (
            "How",
            {
                "fields": (
                    "trigger", "triggered_by", "queue", "priority", "time_limit", "job_version", "recorded_epoch",
                    "waits_for", "locked_by", "dispatches", "request_key", "concurrency_key", "ordering_key",
                )
            },
        ),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[JobRun]:
        load_tasks()
        runs: QuerySet[JobRun] = super().get_queryset(request).select_related("job")
        match = request.resolver_match
        return runs.defer(*LARGE) if match and str(match.url_name).endswith("_changelist") else runs

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [name for _, options in self.fieldsets for name in options["fields"]]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[JobRun], search_term: str
    ) -> tuple[QuerySet[JobRun], bool]:
        """A whole id is one step into an index; anything else is looked for among the jobs, never among the runs."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(pk=UUID(term)), False
        except ValueError:
            return queryset.filter(job__name__icontains=term), False

    # columns and fields

    @display(description="Run")
    def short_id(self, run: JobRun) -> SafeString:
        return line(f"…{str(run.pk)[-12:]}")

    @display(description="Job or task")
    def what(self, run: JobRun) -> str:
        return run.job.name if run.job else run.task

    @display(description="Status", label=RUN_LABELS)
    def state(self, run: JobRun) -> str:
        return run.status

    @display(description="Slot")
    def slot(self, run: JobRun) -> SafeString:
        return line(instant(run.scheduled_for))

    @display(description="Attempts")
    def tried(self, run: JobRun) -> SafeString:
        return line(f"{run.attempts} of {run.max_attempts}")

    @display(description="Took")
    def took(self, run: JobRun) -> SafeString:
        return line(lasted(run.started_at, run.finished_at))

    @display(description="Id")
    def shown_id(self, run: JobRun) -> str:
        return str(run.pk)

    @display(description="Job")
    def job_page(self, run: JobRun) -> SafeString | str:
        return job_link(run.job)

    @display(description="Last error")
    def error(self, run: JobRun) -> SafeString | str:
        return block(run.last_error)

    @display(description="Ended attempts")
    def attempts_table(self, run: JobRun) -> SafeString:
        attempts = list(Attempt.objects.filter(run_id=run.pk).order_by("number"))
        first_try = run.status == "succeeded" and run.attempts == 1
        empty = "It succeeded at the first attempt." if first_try else "None has ended yet."
        return render_to_string("scheduler_app/admin/attempts.html", {"attempts": attempts, "empty": empty})

    @display(description="Slot")
    def slot_twice(self, run: JobRun) -> SafeString | str:
        return two_zones(run.scheduled_for, run.job.timezone if run.job else "UTC")

    @display(description="Created")
    def created(self, run: JobRun) -> str:
        return instant(run.created_at)

    @display(description="Not before")
    def not_before(self, run: JobRun) -> str:
        return instant(run.run_after)

    @display(description="Dispatched")
    def dispatched(self, run: JobRun) -> str:
        return instant(run.dispatched_at)

    @display(description="Started")
    def started(self, run: JobRun) -> str:
        return instant(run.started_at)

    @display(description="Finished")
    def finished(self, run: JobRun) -> str:
        return instant(run.finished_at)

    @display(description="Expires")
    def expires(self, run: JobRun) -> str:
        return instant(run.expires_at)

    @display(description="Asked to stop")
    def asked_to_stop(self, run: JobRun) -> str:
        return instant(run.cancel_requested_at)

    @display(description="Task unknown to workers since")
    def unknown_since(self, run: JobRun) -> str:
        return instant(run.unknown_since)

    @display(description="Positional arguments")
    def positional(self, run: JobRun) -> SafeString | str:
        return json_block(run.args) if run.args else NOTHING

    @display(description="Arguments")
    def arguments(self, run: JobRun) -> SafeString | str:
        return json_block(run.payload) if run.payload else NOTHING

    @display(description="Result")
    def outcome(self, run: JobRun) -> SafeString | str:
        return json_block(run.result) if run.result is not None else NOTHING

    @display(description="Progress")
    def progress_text(self, run: JobRun) -> str:
        return NOTHING if run.progress is None else f"{run.progress:g} % {run.progress_message}".strip()

    @display(description="Waits for")
    def waits_for(self, run: JobRun) -> SafeString | str:
        return run_link(run.held_by)

    # what people decide

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """Only what the run's state allows."""
        status = (
            JobRun.objects.filter(pk=object_id).values_list("status", flat=True).first() if _is_id(object_id) else None
        )
        useful = {
            "dead": "_redrive_run",
            "cancelled": "_redrive_run",
            "queued": "_cancel_run",
            "running": "_cancel_run",
        }
        allowed = super().get_actions_detail(request, object_id)
        return [each for each in allowed if each.action_name.endswith(useful.get(status or "", "?"))]

    def has_decide_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("scheduler_app.change_jobrun"))

    @action(
        description="Redrive", url_path="redrive", permissions=["decide"], icon="replay", variant=ActionVariant.PRIMARY,
        dialog={
            "title": "Send this run back to the queue", "description": "It gets as many attempts as a new run.",
            "form_class": RedriveForm, "form_submit_text": "Redrive",
        },
    )  # fmt: skip
    def redrive_run(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        def step() -> str:
            if not redrive([UUID(object_id)], request.user.get_username(), reason=form.cleaned_data["reason"]):
                raise InvalidDefinition("status", "only dead and cancelled runs can be redriven")
            return "The run is queued again."

        return act(request, self._page(object_id), step)

    @action(
        description="Cancel", url_path="cancel", permissions=["decide"], icon="cancel", variant=ActionVariant.DANGER,
        dialog={
            "title": "Cancel this run", "form_class": None, "form_submit_text": "Cancel the run",
            "description": "A queued run ends at once; a running one is asked to stop.",
        },
    )  # fmt: skip
    def cancel_run(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        def step() -> str:
            done = cancel([UUID(object_id)], request.user.get_username())
            if not (done.ended or done.asked):
                raise InvalidDefinition("status", "the run has ended, or was asked to stop before")
            return "The run is cancelled." if done.ended else "The run was asked to stop."

        return act(request, self._page(object_id), step)

    @admin.action(description="Redrive dead and cancelled runs", permissions=["decide"])
    def redrive_selected(self, request: HttpRequest, runs: QuerySet[JobRun]) -> None:
        sent = redrive([run.pk for run in runs], request.user.get_username())
        messages.success(request, f"{len(sent)} runs are queued again.")

    @admin.action(description="Cancel queued and running runs", permissions=["decide"])
    def cancel_selected(self, request: HttpRequest, runs: QuerySet[JobRun]) -> None:
        done = cancel([run.pk for run in runs], request.user.get_username())
        messages.success(request, f"{len(done.ended)} runs are cancelled, {len(done.asked)} were asked to stop.")

    def _page(self, object_id: str) -> str:
        return reverse("admin:scheduler_app_jobrun_change", args=[object_id])


def _is_id(text: Any) -> bool:
    try:
        return bool(UUID(str(text)))
    except ValueError:
        return False
