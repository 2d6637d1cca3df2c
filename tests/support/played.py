"""A run that was worked on, as its row and as Celery answer for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery.result import AsyncResult

from scheduler_app.models import Attempt, DeadLetter, JobRun
from tests.support.workload import lines


@dataclass(frozen=True)
class Played:
    """A run that was worked on: its row, attempts and dead letters, and how Celery answers for it."""

    row: JobRun
    attempts: list[Attempt]
    letters: list[DeadLetter]
    state: str
    traceback: str | None
    answer: Any
    notes: list[str]

    @property
    def end(self) -> tuple[str, str, int]:
        return self.row.status, self.row.reason, self.row.attempts

    @property
    def outcomes(self) -> list[str]:
        return [attempt.outcome for attempt in self.attempts]


def look(result: AsyncResult[Any], notes: Path) -> Played:
    answer = None
    if result.ready():
        try:
            answer = result.get(timeout=1)
        except Exception as error:
            answer = error
    return Played(
        JobRun.objects.get(pk=result.id),
        list(Attempt.objects.filter(run_id=result.id).order_by("number")),
        list(DeadLetter.objects.filter(run_id=result.id)),
        result.state,
        result.traceback,
        answer,
        lines(notes),
    )
