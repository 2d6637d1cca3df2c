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


class InvalidDefinition(EveryslotError, ValueError):
    """A definition or a call that is refused where it is entered; `field` names what to mend, `reason` says why."""

    code: ClassVar[str] = "invalid_definition"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class LostGround(EveryslotError, RuntimeError):
    """What the caller stood on is not there: no transaction, no run, no lease."""

    code: ClassVar[str] = "lost_ground"


class RetryLater(EveryslotError):
    """Raised by a task: try again after `after` seconds (at least one), at no cost in attempts."""

    code: ClassVar[str] = "retry_later"

    def __init__(self, after: float, reason: str = "") -> None:
        super().__init__(after, reason)
        self.after = after
        self.reason = reason


class GiveUp(EveryslotError):
    """Raised by a task: no further attempt, for this reason."""

    code: ClassVar[str] = "give_up"


class Cancelled(EveryslotError):
    """Raised by a task (or by `current_run().check()`) when it stops because a cancel was asked for."""

    code: ClassVar[str] = "cancelled"
