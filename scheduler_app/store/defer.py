"""Runs that wait for a worker that knows their task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from scheduler_app.store.statements import load, rows

_SQL = load("defer.sql")


@dataclass(frozen=True, slots=True)
class Unknown:
    """A hint whose task this worker does not know."""

    run_id: UUID
    attempt: int
    task: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """A run that the hint fits: its new status, "" if it stays as it is; `released` counts what waited for the dead."""

    run_id: UUID
    status: str
    released: int


def defer_unknown(unknown: Sequence[Unknown], error: str, patience: float) -> list[Deferred]:
    """Let them wait, or end them `patience` seconds after the first time; what fits no run does not come back."""
    params = {
        "ids": [each.run_id for each in unknown],
        "attempts": [each.attempt for each in unknown],
        "tasks": [each.task for each in unknown],
        "error": error,
        "patience": patience,
    }
    return [Deferred(*row) for row in rows(_SQL["defer_unknown"], params)]
