"""Workers: one row per worker start, which carries the lease of everything that worker runs."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from scheduler_app.models.ids import new_id


class Worker(models.Model):
    """`heartbeat_at` is written by the worker, but only its *change* counts: the reaper times it by its own clock.

    `lock_key` is the session advisory lock that the worker's keeper holds; its loss tells of a death at once.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=255)
    hostname = models.CharField(max_length=255, blank=True, default="")
    pid = models.PositiveIntegerField(default=0)
    concurrency = models.PositiveIntegerField(default=1)
    queues = models.JSONField(default=list)
    lease = models.FloatField()
    beats = models.PositiveBigIntegerField(default=0)
    lock_key = models.BigIntegerField()
    locked = models.BooleanField(default=False)
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())
    stopped_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.CharField(max_length=40, blank=True, default="")

    class Meta:
        ordering = ["-started_at"]
        indexes = [
            models.Index(fields=["id"], name="worker_alive", condition=models.Q(stopped_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return self.name
