"""Runs and their attempts. A run is a row before it is a message: the row is the truth."""

from __future__ import annotations

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Now

from scheduler_app.core.limits import MAX_ATTEMPTS_DEFAULT, PRIORITY_DEFAULT, PRIORITY_MAX, TIME_LIMIT_DEFAULT
from scheduler_app.core.states import FINAL
from scheduler_app.core.states import Status as State
from scheduler_app.models.ids import new_id
from scheduler_app.models.job import Job

RUN_SEQUENCE = "scheduler_app_jobrun_seq"


class Status(models.TextChoices):
    """Display names of core/states.py."""

    QUEUED = State.QUEUED.value, "Queued"
    RUNNING = State.RUNNING.value, "Running"
    SUCCEEDED = State.SUCCEEDED.value, "Succeeded"
    DEAD = State.DEAD.value, "Dead"
    CANCELLED = State.CANCELLED.value, "Cancelled"
    SKIPPED = State.SKIPPED.value, "Skipped"


class Trigger(models.TextChoices):
    SCHEDULE = "schedule", "Schedule"
    MANUAL = "manual", "By hand"
    API = "api", "API"
    CODE = "code", "Code"
    BACKFILL = "backfill", "Backfill"


IS_FINAL = Q(status__in=sorted(state.value for state in FINAL))


class JobRun(models.Model):
    """The duty to do a job once, for one slot; it survives retries.

    (`attempts`, `locked_by`) is the fencing token: `attempts` never goes down, `locked_by` names one worker start.
    `started_at` is that of the latest attempt, `first_started_at` that of the first one since it was made or redriven.
    `reason` is the code of a skip, a cancel or a death (core/plan.py, core/outcome.py).
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    seq = models.BigIntegerField(unique=True, editable=False, db_default=Func(Value(RUN_SEQUENCE), function="nextval"))
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.PROTECT, db_index=False, related_name="runs")
    task = models.CharField(max_length=255)
    args = models.JSONField(default=list, encoder=DjangoJSONEncoder)
    payload = models.JSONField(default=dict, encoder=DjangoJSONEncoder)
    scheduled_for = models.DateTimeField()
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.QUEUED)
    reason = models.CharField(max_length=40, blank=True, default="")
    attempts = models.PositiveIntegerField(default=0)
    max_attempts = models.PositiveIntegerField(default=MAX_ATTEMPTS_DEFAULT)
    run_after = models.DateTimeField()
    dispatched_at = models.DateTimeField(null=True, blank=True)
    dispatches = models.PositiveIntegerField(default=0)
    held_by = models.UUIDField(null=True, blank=True)
    locked_by = models.UUIDField(null=True, blank=True)
    locked_until = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True, default="")
    result = models.JSONField(null=True, blank=True, encoder=DjangoJSONEncoder)
    progress = models.FloatField(null=True, blank=True)
    progress_message = models.CharField(max_length=500, blank=True, default="")
    trigger = models.CharField(max_length=10, choices=Trigger.choices, default=Trigger.CODE)
    triggered_by = models.CharField(max_length=200, blank=True, default="")
    request_key = models.CharField(max_length=255, blank=True, default="")
    recorded_epoch = models.BigIntegerField(null=True, blank=True)
    concurrency_key = models.CharField(max_length=255, blank=True, default="")
    ordering_key = models.CharField(max_length=255, blank=True, default="")
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    unknown_since = models.DateTimeField(null=True, blank=True)
    time_limit = models.PositiveIntegerField(default=TIME_LIMIT_DEFAULT)
    canvas = models.JSONField(null=True, blank=True, encoder=DjangoJSONEncoder)
    job_version = models.PositiveIntegerField(null=True, blank=True)
    queue = models.CharField(max_length=100, default="default")
    priority = models.PositiveSmallIntegerField(default=PRIORITY_DEFAULT)
    created_at = models.DateTimeField(db_default=Now())
    first_started_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-seq"]
        constraints = [
            models.UniqueConstraint(fields=["job", "scheduled_for"], name="run_one_per_slot"),
            models.UniqueConstraint(
                fields=["task", "request_key"], name="run_request_key", condition=~Q(request_key="")
            ),
            models.UniqueConstraint(
                fields=["concurrency_key"],
                name="run_one_per_concurrency_key",
                condition=Q(status=Status.RUNNING) & ~Q(concurrency_key=""),
            ),
            models.CheckConstraint(name="run_status", condition=Q(status__in=Status.values)),
            models.CheckConstraint(name="run_priority", condition=Q(priority__lte=PRIORITY_MAX)),
            models.CheckConstraint(name="run_time_limit", condition=Q(time_limit__gt=0)),
            models.CheckConstraint(name="run_attempts", condition=Q(attempts__lte=F("max_attempts"))),
            models.CheckConstraint(
                name="run_running_is_owned",
                condition=~Q(status=Status.RUNNING)
                | Q(
                    locked_by__isnull=False,
                    locked_until__isnull=False,
                    started_at__isnull=False,
                    attempts__gte=1,
                ),
            ),
            models.CheckConstraint(
                name="run_queued_is_free", condition=~Q(status=Status.QUEUED) | Q(locked_by__isnull=True)
            ),
            models.CheckConstraint(
                name="run_final_has_an_end",
                condition=(IS_FINAL & Q(finished_at__isnull=False)) | (~IS_FINAL & Q(finished_at__isnull=True)),
            ),
            models.CheckConstraint(
                name="run_success_was_tried", condition=~Q(status=Status.SUCCEEDED) | Q(attempts__gte=1)
            ),
            models.CheckConstraint(name="run_skip_has_a_reason", condition=~Q(status=Status.SKIPPED) | ~Q(reason="")),
            models.CheckConstraint(name="run_dead_has_a_reason", condition=~Q(status=Status.DEAD) | ~Q(reason="")),
            models.CheckConstraint(
                name="run_held_is_queued",
                condition=Q(held_by__isnull=True) | Q(status=Status.QUEUED, dispatched_at__isnull=True),
            ),
            models.CheckConstraint(
                name="run_progress", condition=Q(progress__isnull=True) | Q(progress__range=(0, 100))
            ),
        ]
        indexes = [
            models.Index(
                "queue",
                F("priority").desc(),
                "run_after",
                "seq",
                name="run_ready",
                condition=Q(status=Status.QUEUED, dispatched_at__isnull=True, held_by__isnull=True),
            ),
            models.Index(
                fields=["queue", "dispatched_at"],
                name="run_published",
                condition=Q(status=Status.QUEUED, dispatched_at__isnull=False),
            ),
            models.Index(fields=["locked_by"], name="run_running", condition=Q(status=Status.RUNNING)),
            models.Index(fields=["job", "seq"], name="run_active", condition=~IS_FINAL),
            models.Index(fields=["job", "-seq"], name="run_history"),
            models.Index(fields=["held_by"], name="run_held", condition=Q(held_by__isnull=False)),
            models.Index(fields=["status", "finished_at"], name="run_ended", condition=IS_FINAL),
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.id}"


class Attempt(models.Model):
    """One try of a run; written at its end, except for a success at the first try."""

    pk = models.CompositePrimaryKey("run_id", "number")
    run_id = models.UUIDField()
    number = models.PositiveIntegerField()
    worker = models.UUIDField(null=True)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(db_default=Now())
    outcome = models.CharField(max_length=20)
    error = models.TextField(blank=True, default="")
    traceback = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["run_id", "number"]

    def __str__(self) -> str:
        return f"{self.run_id} #{self.number}: {self.outcome}"


class SkippedRange(models.Model):
    """A gap of many slots that will not run, as one row. `first` and `last` are slots, both included."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="skipped_ranges")
    first = models.DateTimeField()
    last = models.DateTimeField()
    count = models.PositiveBigIntegerField()
    reason = models.CharField(max_length=40)
    job_version = models.PositiveIntegerField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["job", "first"], name="skipped_range_once")]

    def __str__(self) -> str:
        return f"{self.count} slots from {self.first}: {self.reason}"
