"""What every schedule is: a pure value that answers "which slot comes next after this instant?".

Guaranteed: `next` is strictly after its argument, depends on nothing else, never raises for an aware datetime
and never repeats. Inside, instants are integers (microseconds since the Unix epoch): no zone can bend those.
"""

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final, Literal

Kind = Literal["cron", "interval", "once"]

SECOND: Final = 1_000_000
DAY: Final = 86_400
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
EARLIEST: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _TICK
LATEST: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _TICK


def to_micros(moment: datetime) -> int:
    """Microseconds since the epoch; ValueError for a naive datetime, whose instant nobody can know."""
    if moment.tzinfo is None:
        raise ValueError("a datetime without a time zone does not name an instant")
    since = moment - EPOCH
    return (since.days * DAY + since.seconds) * SECOND + since.microseconds


def to_instant(micros: int) -> datetime:
    """The UTC datetime of `micros` since the epoch."""
    return EPOCH + timedelta(microseconds=micros)


class Schedule(ABC):
    """A parsed schedule: immutable, hashable, safe to share between threads."""

    __slots__ = ()
    kind: ClassVar[Kind]

    @abstractmethod
    def next_micros(self, after: int) -> int | None:
        """The first slot strictly after `after`; both in microseconds since the epoch."""

    def next(self, after: datetime) -> datetime | None:
        """The first slot strictly after `after` (aware), in UTC; None when the schedule has ended."""
        found = self.next_micros(max(to_micros(after), EARLIEST - 1))
        return None if found is None or found > LATEST else to_instant(found)

    def between(self, start: datetime, end: datetime, limit: int) -> list[datetime]:
        """The slots from `start` to `end`, both ends included, oldest first, at most `limit` of them."""
        slots: list[datetime] = []
        last = min(to_micros(end), LATEST)
        found = self.next_micros(max(to_micros(start), EARLIEST) - 1)
        while found is not None and found <= last and len(slots) < limit:
            slots.append(to_instant(found))
            found = self.next_micros(found)
        return slots
