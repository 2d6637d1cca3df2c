"""PostgreSQL array literals for large batches: written at once, where a driver would adapt element by element.

Only for values whose text needs no quoting inside a literal: UUIDs, numbers, booleans, instants, and words of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID


def literal(values: Iterable[UUID | int | float | datetime | None]) -> str:
    """`{…}` with NULL for None; cast it in the statement."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def words(values: Iterable[str]) -> str:
    """As `literal`, for texts of letters and underscores; ValueError for any other."""
    texts = list(values)
    for text in set(texts):
        if text and not text.replace("_", "a").isalnum():
            raise ValueError(f"{text!r} is not a word")
    return "{" + ",".join([text or '""' for text in texts]) + "}"
