"""Steps of runs that are done: what makes a block of a task run once, however often its run is tried."""

from __future__ import annotations

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models.functions import Now


class ProcessedStep(models.Model):
    """A named block of a run that has finished, with its result. The key is what keeps it from being done twice."""

    pk = models.CompositePrimaryKey("run_id", "name")
    run_id = models.UUIDField()
    name = models.CharField(max_length=200)
    result = models.JSONField(null=True, encoder=DjangoJSONEncoder)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "processed_steps"

    def __str__(self) -> str:
        return f"{self.run_id}: {self.name}"
