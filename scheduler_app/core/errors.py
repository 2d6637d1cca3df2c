"""The errors of the core. Each class has a `code` that never changes, for logs, the API and callers."""

from typing import ClassVar


class EveryslotError(Exception):
    """Base of every error that this package raises on purpose."""

    code: ClassVar[str] = "everyslot_error"


class InvalidSchedule(EveryslotError, ValueError):
    """A schedule that can never be run as written.

    `field` names the part to mend ("minute", "hour", "day of month", "month", "day of week", "schedule",
    "timezone", "gap", "fold" or "anchor"); `reason` is one clause for the person who typed it.
    """

    code: ClassVar[str] = "invalid_schedule"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"
