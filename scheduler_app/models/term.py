"""The term: who leads, since when, and the growing number that fences the leaders before."""

from __future__ import annotations

from django.db import models


class Term(models.Model):
    """One row per shard; what a Kubernetes Lease holds, plus the fencing `epoch`. `duration` is seconds.

    `session_locked` says that the holder's session also holds the advisory lock, so that its death is seen at once.
    """

    shard = models.PositiveSmallIntegerField(primary_key=True, default=0)
    holder = models.CharField(max_length=255, blank=True, default="")
    epoch = models.BigIntegerField(default=0)
    acquired_at = models.DateTimeField(null=True)
    renewed_at = models.DateTimeField(null=True)
    duration = models.FloatField(default=5)
    transitions = models.BigIntegerField(default=0)
    session_locked = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"shard {self.shard}: {self.holder or 'nobody'}, epoch {self.epoch}"
