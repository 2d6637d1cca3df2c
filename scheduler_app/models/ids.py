"""Keys made by us: UUIDv7 (RFC 9562 §5.7), ordered by time so that new rows go to the end of the index."""

from __future__ import annotations

from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    """A new time-ordered id."""
    return uuid7()
