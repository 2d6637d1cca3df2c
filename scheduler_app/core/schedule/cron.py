"""Five-field cron: which minutes match, and where they fall when a zone's clocks change.

Guaranteed, by Debian's rule (cron(8)): a job whose minute or hour field starts with `*` follows real time.
Any other has fixed times: one that the clocks jump over runs once at the first valid minute after the jump
(several collapse to one), one that comes twice runs in the first pass only; `gap` and `fold` change that.
Jumps of three hours and more correct the clock: nothing is made up and nothing held back. If `next_micros`
depended on anything but its argument, two beats would disagree about the slots, and the promise of one run
per slot would be gone.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

from ..errors import InvalidSchedule
from .base import DAY, SECOND, Kind, Schedule
from .days import Days, parse_days
from .fields import HOUR, MINUTE, parse_field
from .zones import CLOCK_CORRECTION, Changes, Span, spans

MACROS: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_ZONE_AT_END: Final = re.compile(r"UTC|GMT|[A-Z_]{3,}/[A-Z_/]{3,}")


@dataclass(frozen=True, slots=True)
class Cron(Schedule):
    """A cron schedule in a zone: masks of minutes and hours; `fixed` is false if it follows real time."""

    kind: ClassVar[Kind] = "cron"
    minutes: int
    hours: int
    days: Days
    fixed: bool
    zone: ZoneInfo
    changes: Changes

    def next_micros(self, after: int) -> int | None:
        """The first slot strictly after `after` (microseconds since the epoch); None if none in 50 years."""
        second = after // SECOND
        near = spans(self.zone, second // DAY)
        # The smaller offset gives the earlier date: after a backward jump ahead, this date may come again.
        offset = near[0].offset if len(near) == 1 else min(span.offset for span in near)
        dates = self.days.since((second + offset) // DAY)
        for day in dates:
            found = self._on_day(day, second)
            if found is None:
                continue
            if len(spans(self.zone, day)) > 1 and next(dates, None) == day + 1:
                # A backward jump across midnight: the next date begins before this one is over.
                following = self._on_day(day + 1, second)
                found = found if following is None else min(found, following)
            return found * SECOND
        return None

    def _on_day(self, day: int, after: int) -> int | None:
        """The first second after `after` at which a slot of the local date `day` falls."""
        stretch = spans(self.zone, day)
        if len(stretch) > 1:
            return self._across(day, stretch, after)
        offset = stretch[0].offset
        minute = self._minute_from((after + offset - day * DAY) // 60 + 1)
        return None if minute is None else day * DAY + minute * 60 - offset

    def _across(self, day: int, stretch: tuple[Span, ...], after: int) -> int | None:
        """The same for a date near a change of the clocks, one stretch of constant offset at a time."""
        midnight = day * DAY
        for earlier, span, later in zip((None, *stretch), stretch, (*stretch[1:], None), strict=False):
            made_up = self._made_up(midnight, earlier, span)
            if made_up is not None and made_up > after:
                return made_up
            low, high = self._own_times(earlier, span, later)
            minute = self._minute_from(-((midnight - max(low, after + span.offset + 1)) // 60))
            if minute is not None and midnight + minute * 60 < high:
                return midnight + minute * 60 - span.offset
        return None

    def _made_up(self, midnight: int, earlier: Span | None, span: Span) -> int | None:
        """When fixed times of the day that the clocks jumped over at the start of `span` are made up."""
        if not self.fixed or self.changes.gap == "skip" or earlier is None:
            return None
        low, high = span.start + earlier.offset, span.start + span.offset
        if not 0 < high - low < CLOCK_CORRECTION:
            return None
        minute = self._minute_from(-((midnight - low) // 60))
        if minute is None or midnight + minute * 60 >= high:
            return None
        return high + -high % 60 - span.offset

    def _own_times(self, earlier: Span | None, span: Span, later: Span | None) -> tuple[int, int]:
        """The local seconds (end excluded) whose slots run in `span`; one pass of what comes twice is out."""
        low, high = span.start + span.offset, span.end + span.offset
        if self.fixed and self.changes.fold == "first" and earlier is not None:
            seen = span.start + earlier.offset
            low = seen if 0 < seen - low < CLOCK_CORRECTION else low
        if self.fixed and self.changes.fold == "last" and later is not None:
            again = span.end + later.offset
            high = again if 0 < high - again < CLOCK_CORRECTION else high
        return low, high

    def _minute_from(self, minute: int) -> int | None:
        """The first matching minute of a day (0 to 1439) from `minute` on, which may lie outside the day."""
        hour, rest = divmod(max(minute, 0), 60)
        if self.hours >> hour & 1:
            left = self.minutes >> rest
            if left:
                return hour * 60 + rest + (left & -left).bit_length() - 1
        hours = self.hours >> hour + 1
        if not hours:
            return None
        return (hour + (hours & -hours).bit_length()) * 60 + (self.minutes & -self.minutes).bit_length() - 1


def parse_cron(text: str, zone: ZoneInfo, key: str, changes: Changes) -> Cron:
    """Parse five fields (upper case, no macro). InvalidSchedule names the field that is wrong."""
    parts = text.split()
    if len(parts) != 5:
        raise InvalidSchedule("schedule", _why_not_five(parts))
    minute, hour, of_month, month, of_week = parts
    return Cron(
        parse_field(MINUTE, minute, key),
        parse_field(HOUR, hour, key),
        parse_days(of_month, month, of_week, key),
        not (minute[0] == "*" or hour[0] == "*"),
        zone,
        changes,
    )


def _why_not_five(parts: list[str]) -> str:
    if parts[0].startswith(("TZ=", "CRON_TZ=")) or _ZONE_AT_END.fullmatch(parts[-1]):
        return "a time zone inside the text is not read; put it in the time zone field"
    if len(parts) in (6, 7):
        return "seconds and years are not supported; write five fields, or @every 30s for short intervals"
    return f"write five fields (minute, hour, day of month, month, day of week), not {len(parts)}"
