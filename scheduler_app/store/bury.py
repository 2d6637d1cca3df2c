"""Dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_app.core.letter import Letter
from scheduler_app.store.statements import load, rows

_SQL = load("bury.sql")


def fill_letters(letters: Sequence[Letter]) -> int:
    """Complete the letters that the ends of runs have written; how many were."""
    return len(rows(_SQL["fill_letters"], _columns(letters)))


def bury_letters(letters: Sequence[Letter]) -> int:
    """Note dead messages; how many were new."""
    return len(rows(_SQL["bury_letters"], _columns(letters)))


def _columns(letters: Sequence[Letter]) -> dict[str, list[object]]:
    return {
        "run_ids": [each.run_id for each in letters],
        "attempts": [each.attempt for each in letters],
        "tasks": [each.task for each in letters],
        "queues": [each.queue for each in letters],
        "reasons": [each.reason for each in letters],
        "headers": [each.headers for each in letters],
        "bodies": [each.body for each in letters],
        "digests": [each.digest for each in letters],
    }
