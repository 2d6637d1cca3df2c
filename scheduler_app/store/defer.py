"""Runs that wait for a worker that knows their task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from scheduler_app.core.states import Status
from scheduler_app.store.statements import load, rows
from scheduler_app.store.work import Done

_SQL = load("defer.sql")


@dataclass(frozen=True, slots=True)
class Unknown:
    """A hint whose task this worker does not know."""

    run_id: UUID
    attempt: int
    task: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """The runs that the hints fit, and those of them that now wait or are dead."""

    real: set[UUID]
    changed: list[Done]


def defer_unknown(unknown: Sequence[Unknown], error: str, patience: float) -> Deferred:
    """Let them wait, or end them `patience` seconds after the first time."""
    params = {
        "ids": [each.run_id for each in unknown],
        "attempts": [each.attempt for each in unknown],
        "tasks": [each.task for each in unknown],
        "error": error,
        "patience": patience,
    }
    found = rows(_SQL["defer_unknown"], params)
    return Deferred(
        {row[0] for row in found},
        [Done(run_id, Status(status), *rest) for run_id, status, *rest in found if status is not None],
    )
