"""Jobs: define them with a preview, start, pause, resume and delete them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString
from unfold.decorators import action, display
from unfold.enums import ActionVariant

from scheduler_app.admin.base import ModelAdmin
from scheduler_app.admin.cells import JOB_LABELS, NOTHING, RUN_LABELS, instant, line, runs_table, two_zones
from scheduler_app.admin.dialogs import PauseForm, RunForm, act
from scheduler_app.admin.job_filters import StateFilter
from scheduler_app.admin.job_form import JobForm
from scheduler_app.admin.preview import preview_view
from scheduler_app.core.errors import EveryslotError, InvalidDefinition
from scheduler_app.lifecycle import define
from scheduler_app.lifecycle.loading import load_tasks
from scheduler_app.lifecycle.overview import JobState, last_run, runs_of, state_of, why, with_last_run
from scheduler_app.lifecycle.rules import InvalidJob, payload_from_text
from scheduler_app.lifecycle.sync import DECLARED
from scheduler_app.lifecycle.trigger import run_now
from scheduler_app.models import Job
from scheduler_app.models.job import Origin

LATEST_RUNS = 10
SHORT = 30  # characters of a schedule that stay on one line
PAUSABLE = (JobState.ENABLED, JobState.ON_DEMAND, JobState.ENDED)


@admin.register(Job)
class JobAdmin(ModelAdmin):
    """Every change goes through `lifecycle.define`; this class never saves a Job by itself."""

    form = JobForm
    list_display = ("name", "state", "schedule_text", "next_slot", "newest_run", "task")
    list_filter = (StateFilter, "queue")
    search_fields = ("name", "task")
    list_per_page = 50
    sortable_by = ("name", "next_slot")
    warn_unsaved_form = True
    actions = ("run_selected", "pause_selected", "resume_selected", "delete_softly")
    actions_detail = ("run_job", "pause_job", "resume_job", "delete_job")
    fieldsets = (
        (None, {"fields": ("expected_version", "notes", "name", "task", "payload")}),
        ("When", {"fields": ("schedule", "timezone", "enabled", "coming")}),
        (
            "Overlap and missed slots",
            {
                "classes": ["tab"],
                "fields": (
                    "concurrency_policy", "catch_up", "catch_up_limit", "misfire_grace", "starting_deadline", "jitter",
                ),
            },
        ),
        ("Window and clocks", {"classes": ["tab"], "fields": ("start_at", "end_at", "max_runs", "gap", "fold")}),
        (
            "Runs and retries",
            {
                "classes": ["tab"],
                "fields": (
                    "queue", "priority", "time_limit", "max_attempts", "retry_backoff", "retry_backoff_max",
                    "retry_jitter",
                ),
            },
        ),
        ("Latest runs", {"classes": ["tab"], "fields": ("latest_runs",)}),
    )  # fmt: skip

    class Media:
        css = {"all": ("scheduler_app/admin.css",)}
        js = ("scheduler_app/preview.js",)

    # what is shown

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        load_tasks()
        return with_last_run(super().get_queryset(request))

    @display(description="State", label=JOB_LABELS)
    def state(self, job: Any) -> str:
        return state_of(job, job.seen_at).value

    @display(description="Schedule")
    def schedule_text(self, job: Job) -> SafeString | str:
        return line(job.schedule) if 0 < len(job.schedule) < SHORT else job.schedule or NOTHING

    @display(description="Next slot", ordering="next_run_at")
    def next_slot(self, job: Job) -> SafeString | str:
        return two_zones(job.next_run_at, job.timezone)

    @display(description="Last run", label=RUN_LABELS)
    def newest_run(self, job: Job) -> str | None:
        found = last_run(job)
        return found.status if found else None

    @display(description="State")
    def notes(self, job: Any) -> str:
        state = state_of(job, job.seen_at).value.capitalize()
        said = [": ".join(part for part in (state, why(job, job.seen_at)) if part)]
        if job.origin == Origin.CODE:
            said.append("declared in code: what the declaration says can only be changed there")
        return "; ".join(said)

    @display(description="Latest runs")
    def latest_runs(self, job: Job) -> SafeString:
        return runs_table(list(runs_of(job.pk)[:LATEST_RUNS]))

    def get_readonly_fields(self, request: HttpRequest, obj: Job | None = None) -> list[str]:
        declared = [*DECLARED, "name"] if obj and obj.origin == Origin.CODE else []
        return ["notes", "latest_runs", *declared]

    def get_fieldsets(self, request: HttpRequest, obj: Job | None = None) -> Any:
        """A job to be has neither notes nor runs."""
        if obj is not None:
            return self.fieldsets
        left_out = {"notes", "latest_runs"}
        trimmed = [
            (title, {**options, "fields": [name for name in options["fields"] if name not in left_out]})
            for title, options in self.fieldsets
        ]
        return [each for each in trimmed if each[1]["fields"]]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(lambda request: preview_view(request, self))
        return [path("preview/", view, name="scheduler_app_job_preview"), *super().get_urls()]

    # what is changed

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        gone = isinstance(obj, Job) and obj.deleted_at is not None
        return not gone and bool(super().has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # rows stay: the record of their runs needs them; see has_remove_permission

    def has_remove_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("scheduler_app.delete_job"))

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """A change that another one overtook between check and save is told, never forced."""
        load_tasks()
        try:
            return super().changeform_view(request, *args, **kwargs)
        except (define.VersionConflict, define.JobMissing, InvalidJob) as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.path)

    def save_model(self, request: HttpRequest, obj: Job, form: Any, change: bool) -> None:
        by = request.user.get_username()
        fields = form.definition()
        if change:
            expected = form.cleaned_data["expected_version"]
            saved = define.update(obj.pk, fields, expected_version=expected, by=by)
        else:
            saved = define.create(fields, origin=Origin.ADMIN, by=by)
        for field in Job._meta.concrete_fields:
            setattr(obj, field.attname, getattr(saved, field.attname))
        obj._state.adding = False

    # buttons of a job's page

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """Only the buttons that can do something in the job's state."""
        job: Any = self.get_queryset(request).filter(pk=object_id).first() if str(object_id).isdecimal() else None
        if job is None or job.deleted_at:
            return []
        pausable = state_of(job, job.seen_at) in PAUSABLE
        useless = "_resume_job" if pausable else "_pause_job"
        allowed = super().get_actions_detail(request, object_id)
        return [each for each in allowed if not each.action_name.endswith(useless)]

    @action(
        description="Run now", url_path="run", permissions=["change"], icon="play_arrow", variant=ActionVariant.PRIMARY,
        dialog={"title": "Run this job now", "description": "", "form_class": RunForm, "form_submit_text": "Run now"},
    )  # fmt: skip
    def run_job(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return act(request, self._page(object_id), lambda: self._run(request, object_id, form.cleaned_data["payload"]))

    @action(
        description="Pause", url_path="pause", permissions=["change"], icon="pause",
        dialog={
            "title": "Pause this job", "description": "Its slots are skipped, visibly. Runs that started go on.",
            "form_class": PauseForm, "form_submit_text": "Pause",
        },
    )  # fmt: skip
    def pause_job(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        def step() -> str:
            asked, by = form.cleaned_data, request.user.get_username()
            job = define.pause(int(object_id), asked["reason"], until=asked["until"], by=by)
            return f"Paused {job.name}" + (f" until {instant(asked['until'])}." if asked["until"] else ".")

        return act(request, self._page(object_id), step)

    @action(
        description="Resume", url_path="resume", permissions=["change"], icon="resume",
        dialog={
            "title": "Resume this job", "form_class": None, "form_submit_text": "Resume",
            "description": "It is enabled, a pause ends and a quarantine is lifted. Nothing of the past runs.",
        },
    )  # fmt: skip
    def resume_job(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        def step() -> str:
            return f"Resumed {define.resume(int(object_id), by=request.user.get_username()).name}."

        return act(request, self._page(object_id), step)

    @action(
        description="Delete", url_path="remove", permissions=["remove"], icon="delete", variant=ActionVariant.DANGER,
        dialog={
            "title": "Delete this job", "description": "Its runs stay on record, and its name becomes free.",
            "form_class": None, "form_submit_text": "Delete",
        },
    )  # fmt: skip
    def delete_job(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        def step() -> str:
            return f"Deleted {define.delete(int(object_id), by=request.user.get_username()).name}."

        return act(request, reverse("admin:scheduler_app_job_changelist"), step)

    # actions of the list

    @admin.action(description="Run now", permissions=["change"])
    def run_selected(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._each(request, jobs, "Started", run_now)

    @admin.action(description="Pause", permissions=["change"])
    def pause_selected(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._each(request, jobs, "Paused", lambda job, by: define.pause(job.pk, "", by=by))

    @admin.action(description="Resume", permissions=["change"])
    def resume_selected(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._each(request, jobs, "Resumed", lambda job, by: define.resume(job.pk, by=by))

    @admin.action(description="Delete (runs stay on record)", permissions=["remove"])
    def delete_softly(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._each(request, jobs, "Deleted", lambda job, by: define.delete(job.pk, by=by))

    def _each(self, request: HttpRequest, jobs: Iterable[Job], done: str, step: Callable[[Job, str], object]) -> None:
        """One after another, so that a refused job stops no other; each refusal is told."""
        names = []
        for job in jobs:
            try:
                step(job, request.user.get_username())
                names.append(job.name)
            except EveryslotError as error:
                messages.error(request, f"{job.name}: {error}")
        if names:
            messages.success(request, f"{done} {', '.join(names)}.")

    def _run(self, request: HttpRequest, object_id: str, typed: str) -> str:
        job = Job.objects.live().filter(pk=int(object_id)).first()
        if job is None:
            raise InvalidDefinition("job", "was deleted")
        payload = payload_from_text(typed) if typed.strip() else None
        return f"Started {job.name}: run {run_now(job, request.user.get_username(), payload)}."

    def _page(self, object_id: str) -> str:
        return reverse("admin:scheduler_app_job_change", args=[object_id])
