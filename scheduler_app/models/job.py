"""A job: what to run, when, and under which policies."""

from __future__ import annotations

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from scheduler_app.core.limits import PRIORITY_DEFAULT, PRIORITY_MAX, TIME_LIMIT_DEFAULT


class ConcurrencyPolicy(models.TextChoices):
    """What a slot does while an earlier run of the job is queued or running."""

    ALLOW = "allow", "Allow: run beside it"
    FORBID = "forbid", "Forbid: skip the slot, visibly"
    REPLACE = "replace", "Replace: cancel the earlier run, start when it has stopped"
    QUEUE_ONE = "queue_one", "Queue one: wait for it, at most one waits"
    QUEUE_ALL = "queue_all", "Queue all: wait in line"


class CatchUp(models.TextChoices):
    """Which of the slots missed while nothing recorded (older than the misfire grace) are run."""

    LATEST = "latest", "Latest: the newest missed slot"
    NONE = "none", "None: wait for the next slot"
    ALL = "all", "All: each, up to the limit"
    EARLIEST = "earliest", "Earliest: the oldest missed slot"


class Gap(models.TextChoices):
    SHIFT = "shift", "Shift to the first valid minute"
    SKIP = "skip", "Skip"


class Fold(models.TextChoices):
    FIRST = "first", "First pass"
    LAST = "last", "Last pass"
    BOTH = "both", "Both passes"


class Origin(models.TextChoices):
    """Who owns the definition; code and files never touch what a person made."""

    ADMIN = "admin", "Admin"
    CODE = "code", "Code"
    API = "api", "API"
    FILE = "file", "File"


class JobQuerySet(models.QuerySet["Job"]):
    def live(self) -> JobQuerySet:
        """Jobs that were not deleted."""
        return self.filter(deleted_at__isnull=True)


class Job(models.Model):
    """Columns are those of the design; durations are seconds, instants are UTC.

    `next_run_at` is the cursor: the first slot not yet recorded. Only `lifecycle` writes it, under the row lock.
    """

    name = models.CharField(max_length=200, unique=True)
    task = models.CharField(max_length=255)
    payload = models.JSONField(default=dict, blank=True, encoder=DjangoJSONEncoder)
    schedule = models.TextField(blank=True, default="", max_length=1000)
    timezone = models.CharField(max_length=64, default="UTC")
    enabled = models.BooleanField(default=True)
    next_run_at = models.DateTimeField(null=True, blank=True, editable=False)
    anchor = models.DateTimeField(db_default=Now(), editable=False)
    queue = models.CharField(max_length=100, default="default")
    priority = models.PositiveSmallIntegerField(default=PRIORITY_DEFAULT)
    concurrency_policy = models.CharField(
        max_length=10, choices=ConcurrencyPolicy.choices, default=ConcurrencyPolicy.ALLOW
    )
    starting_deadline = models.PositiveIntegerField(null=True, blank=True)
    catch_up = models.CharField(max_length=10, choices=CatchUp.choices, default=CatchUp.LATEST)
    catch_up_limit = models.PositiveIntegerField(default=100)
    misfire_grace = models.PositiveIntegerField(default=60)
    jitter = models.PositiveIntegerField(default=0)
    start_at = models.DateTimeField(null=True, blank=True)
    end_at = models.DateTimeField(null=True, blank=True)
    max_runs = models.PositiveIntegerField(null=True, blank=True)
    recorded_runs = models.PositiveBigIntegerField(default=0, editable=False)
    gap = models.CharField(max_length=5, choices=Gap.choices, blank=True, default="")
    fold = models.CharField(max_length=5, choices=Fold.choices, blank=True, default="")
    paused_until = models.DateTimeField(null=True, blank=True)
    pause_reason = models.CharField(max_length=500, blank=True, default="")
    max_attempts = models.PositiveIntegerField(null=True, blank=True)
    retry_backoff = models.FloatField(null=True, blank=True)
    retry_backoff_max = models.FloatField(null=True, blank=True)
    retry_jitter = models.BooleanField(null=True, blank=True)
    time_limit = models.PositiveIntegerField(default=TIME_LIMIT_DEFAULT)
    origin = models.CharField(max_length=10, choices=Origin.choices, default=Origin.ADMIN, editable=False)
    version = models.PositiveIntegerField(default=1, editable=False)
    quarantined_at = models.DateTimeField(null=True, blank=True, editable=False)
    quarantine_reason = models.TextField(blank=True, default="", editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = JobQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(name="job_priority", condition=Q(priority__lte=PRIORITY_MAX)),
            models.CheckConstraint(name="job_time_limit", condition=Q(time_limit__gt=0)),
            models.CheckConstraint(
                name="job_max_attempts", condition=Q(max_attempts__isnull=True) | Q(max_attempts__gt=0)
            ),
            models.CheckConstraint(
                name="job_window",
                condition=Q(start_at__isnull=True) | Q(end_at__isnull=True) | Q(start_at__lte=F("end_at")),
            ),
            models.CheckConstraint(
                name="job_quarantine_has_reason",
                condition=Q(quarantined_at__isnull=True) | ~Q(quarantine_reason=""),
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_run_at", "id"],
                name="job_due",
                condition=Q(
                    enabled=True,
                    deleted_at__isnull=True,
                    quarantined_at__isnull=True,
                    next_run_at__isnull=False,
                ),
            ),
        ]

    def __str__(self) -> str:
        return self.name
