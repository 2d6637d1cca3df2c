"""Workers: one row per worker start."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from scheduler_app.admin.cells import instant
from scheduler_app.admin.reading import ReadOnlyAdmin
from scheduler_app.models import JobRun, Worker
from scheduler_app.models.run import Status


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """Whether a worker is dead is for the reaper to say, by its own clock; here stands what is on record."""

    list_display = ("name", "state", "running", "concurrency", "heartbeat", "started", "end_reason")
    ordering = ("-started_at",)
    fields = (
        "name", "state", "end_reason", "hostname", "pid", "concurrency", "queues", "running", "lease", "beats",
        "heartbeat", "started", "stopped", "locked",
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        workers: QuerySet[Worker] = super().get_queryset(request)
        return workers

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.fields

    @display(description="State", label={"on duty": "success", "stopped": "default"})
    def state(self, worker: Worker) -> str:
        return "stopped" if worker.stopped_at else "on duty"

    @display(description="Running")
    def running(self, worker: Worker) -> int:
        return JobRun.objects.filter(locked_by=worker.pk, status=Status.RUNNING).count()

    @display(description="Heartbeat")
    def heartbeat(self, worker: Worker) -> str:
        return instant(worker.heartbeat_at)

    @display(description="Started")
    def started(self, worker: Worker) -> str:
        return instant(worker.started_at)

    @display(description="Stopped")
    def stopped(self, worker: Worker) -> str:
        return instant(worker.stopped_at)
