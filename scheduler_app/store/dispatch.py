"""Marking runs as published, and taking marks off again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from scheduler_app.core.message import Hint
from scheduler_app.store.statements import load, rows

_SQL = load("dispatch.sql")


@dataclass(frozen=True, slots=True)
class Marked:
    """A run that is marked as published at `mark` and must be published now."""

    hint: Hint
    mark: datetime


def queues_ready() -> list[str]:
    """The queues with undispatched runs."""
    return [row[0] for row in rows(_SQL["queues_ready"])]


def count_published(queues: Sequence[str], window: int) -> dict[str, int]:
    """Published but unclaimed runs by queue, counted up to `window`."""
    return dict(rows(_SQL["count_published"], {"queues": list(queues), "window": window}))


def count_silent(queues: Sequence[str], window: int, patience: float) -> dict[str, int]:
    """As count_published, for the queues with a run that has been silent for more than `patience` seconds."""
    params = {"queues": list(queues), "window": window, "patience": patience}
    return dict(rows(_SQL["count_silent"], params))


def mark_ready(rooms: Mapping[str, int]) -> list[Marked]:
    """Mark ready runs, at most so many in each queue."""
    return _marked("mark_ready", rooms)


def mark_silent(rooms: Mapping[str, int], patience: float, most: float) -> list[Marked]:
    """Mark silent runs again, at most so many in each queue; `patience` and `most` are seconds."""
    return _marked("mark_silent", rooms, patience=patience, most=most)


def put_back(marked: Sequence[Marked], *, refused: bool) -> int:
    """Take these marks off; how many were still there. A refused run waits longer after each refusal."""
    params = {
        "ids": [each.hint.run_id for each in marked],
        "marks": [each.mark for each in marked],
        "refused": refused,
    }
    return len(rows(_SQL["put_back"], params))


def next_ready(queues: Sequence[str]) -> float | None:
    """Seconds until the time of the next undispatched run; negative if it has come."""
    found: float | None = rows(_SQL["next_ready"], {"queues": list(queues)})[0][0]
    return found


def _marked(name: str, rooms: Mapping[str, int], **params: float) -> list[Marked]:
    given = {"queues": list(rooms), "rooms": list(rooms.values()), **params}
    return [
        Marked(Hint(run_id, task, attempts, queue, priority), mark)
        for run_id, task, attempts, queue, priority, mark in rows(_SQL[name], given)
    ]
