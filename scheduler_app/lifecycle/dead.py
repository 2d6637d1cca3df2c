"""Dead runs by what they have in common: which of them somebody wants to send back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, F, OuterRef, QuerySet

from scheduler_app.core.states import Status
from scheduler_app.models import DeadLetter, Job, JobRun


@dataclass(frozen=True, slots=True)
class Which:
    """What must be true of a dead run; None and "" ask for nothing. `error` is a part of its last error's text, `since`
    and `until` bound the instant of its death."""

    job: Job | None = None
    task: str = ""
    queue: str = ""
    reason: str = ""
    error: str = ""
    since: datetime | None = None
    until: datetime | None = None


def dead_runs(which: Which) -> QuerySet[JobRun]:
    """Those dead runs, in the order of recording. One whose last dead letter was discarded is not among them: somebody
    has decided that it stays dead."""
    discarded = DeadLetter.objects.filter(
        run_id=OuterRef("pk"), attempt__gte=OuterRef("attempts"), discarded_at__isnull=False
    )
    asked = {
        "job": which.job,
        "task": which.task,
        "queue": which.queue,
        "reason": which.reason,
        "last_error__contains": which.error,
        "finished_at__gte": which.since,
        "finished_at__lt": which.until,
    }
    runs = JobRun.objects.filter(status=Status.DEAD, **{name: value for name, value in asked.items() if value})
    return runs.exclude(Exists(discarded)).order_by(F("seq"))
