"""Dead letters: what the broker or a worker gave up, kept with its reason until a person decides."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class DeadLetter(models.Model):
    """A note of a message's death. `run_id` is null when the message named no run. One per run and attempt."""

    run_id = models.UUIDField(null=True, blank=True)
    attempt = models.PositiveIntegerField(null=True, blank=True)
    task = models.CharField(max_length=255, blank=True, default="")
    queue = models.CharField(max_length=100, blank=True, default="")
    reason = models.CharField(max_length=100)
    detail = models.TextField(blank=True, default="")
    headers = models.JSONField(default=dict)
    body = models.TextField(blank=True, default="")
    digest = models.CharField(max_length=64, blank=True, default="")
    buried_at = models.DateTimeField(db_default=Now())
    redriven_at = models.DateTimeField(null=True, blank=True)
    discarded_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.CharField(max_length=200, blank=True, default="")
    decision_reason = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "attempt"],
                name="dead_letter_once_per_attempt",
                condition=Q(run_id__isnull=False),
            ),
            models.UniqueConstraint(fields=["digest"], name="dead_letter_once_per_message", condition=~Q(digest="")),
        ]

    @property
    def decision(self) -> str:
        """What a person has decided about it: `open`, `redriven` or `discarded`."""
        if self.redriven_at:
            return "redriven"
        return "discarded" if self.discarded_at else "open"

    def __str__(self) -> str:
        return f"{self.task or 'message'}: {self.reason}"
