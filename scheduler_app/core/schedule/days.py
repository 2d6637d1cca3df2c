"""Which dates a cron schedule matches: the two day fields, the month, and the search for the next date.

Day of month OR day of week, unless either field starts with `*`, then AND (Debian's crontab(5)). The search
skips whole months and ends after `HORIZON` years, so no input can make it loop: the rarest real date,
29 February on a given weekday, comes back after 40 years at most.
"""

from collections.abc import Iterator
from datetime import date
from typing import Final, NamedTuple

from ..errors import InvalidSchedule
from .fields import DAY_OF_MONTH, DAY_OF_WEEK, MONTH, parse_field, parse_item, refuse, shown, value

HORIZON: Final = 50
"""Years after which a schedule without a slot counts as ended."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
_LAST: Final = date.max.toordinal()
_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

# Bits of the day-of-month mask above the days 1 to 31.
_LAST_DAY: Final = 1 << 32
_LAST_WORKDAY: Final = 1 << 33
# Seven bits for every such weekday, seven for the last one of a month, seven for the k-th one, k from 1 to 5.
_EVERY: Final = 0x7F
_LAST_OF: Final = 7


class Days(NamedTuple):
    """The dates of a schedule as masks; `either` means that one matching day field is enough."""

    months: int
    of_month: int
    of_week: int
    either: bool

    def in_month(self, first_weekday: int, length: int) -> int:
        """Mask of the matching days (bit 1: the first) of a month starting on `first_weekday` (0: Sunday)."""
        of_month = self.of_month
        if of_month & _LAST_DAY:
            of_month |= 1 << length
        if of_month & _LAST_WORKDAY:
            last = (first_weekday + length - 1) % 7
            of_month |= 1 << (length - (2 if last == 0 else 1 if last == 6 else 0))
        turned = (self.of_week & _EVERY) * 0x81 >> first_weekday & _EVERY
        of_week = turned * 0x10204081 << 1
        if self.of_week > _EVERY:
            of_week |= self._ordinal_days(first_weekday, length)
        both = of_month | of_week if self.either else of_month & of_week
        return both & ((2 << length) - 2)

    def _ordinal_days(self, first_weekday: int, length: int) -> int:
        """Mask of the days that `nL` and `n#k` name."""
        mask, rest = 0, self.of_week >> 7
        while rest:
            lowest = rest & -rest
            rest ^= lowest
            nth, weekday = divmod(lowest.bit_length() - 1, 7)
            first = 1 + (weekday - first_weekday) % 7
            mask |= 1 << (first + 7 * (nth - 1) if nth else first + (length - first) // 7 * 7)
        return mask

    def ever(self) -> bool:
        """Whether any date matches; the calendar has every length of month with every first weekday."""
        for month in range(1, 13):
            if self.months >> month & 1:
                for length in (28, 29) if month == 2 else (_LENGTHS[month],):
                    for first_weekday in range(7):
                        if self.in_month(first_weekday, length):
                            return True
        return False

    def since(self, day: int) -> Iterator[int]:
        """The matching dates from `day` on (days since the epoch), ascending, for `HORIZON` years."""
        ordinal = max(day + _EPOCH, 1)
        if ordinal > _LAST:
            return
        start = date.fromordinal(ordinal)
        year, month, first_bit = start.year, start.month, start.day
        last_year = min(year + HORIZON, 9999)
        while year <= last_year:
            later = self.months >> month
            if not later:
                year, month, first_bit = year + 1, 1, 1
                continue
            if not later & 1:
                month, first_bit = month + (later & -later).bit_length() - 1, 1
            first = date(year, month, 1).toordinal()
            length = _LENGTHS[month] + (month == 2 and _is_leap(year))
            mask = self.in_month(first % 7, length) >> first_bit << first_bit
            while mask:
                lowest = mask & -mask
                yield first + lowest.bit_length() - 2 - _EPOCH
                mask ^= lowest
            month, first_bit = month + 1, 1


def parse_days(of_month: str, month: str, of_week: str, key: str) -> Days:
    """The three date fields, in upper case; InvalidSchedule when no date can ever match."""
    days = Days(
        parse_field(MONTH, month, key),
        _parse_of_month(of_month, key),
        _parse_of_week(of_week, key),
        not (of_month[0] in "*?" or of_week[0] in "*?"),
    )
    if not days.ever():
        raise InvalidSchedule(DAY_OF_MONTH.name, "no month has such a day, so the schedule would never run")
    return days


def _parse_of_month(text: str, key: str) -> int:
    if text == "?":
        text = "*"
    mask = 0
    for item in text.split(","):
        if item == "L":
            mask |= _LAST_DAY
        elif item == "LW":
            mask |= _LAST_WORKDAY
        elif "L" in item or "W" in item:
            refuse(DAY_OF_MONTH, f"{shown(item)} is not known; only L (last day) and LW (last weekday) are")
        else:
            mask |= parse_item(DAY_OF_MONTH, item, key)
    return mask


def _parse_of_week(text: str, key: str) -> int:
    if text == "?":
        text = "*"
    mask = 0
    for item in text.split(","):
        if "#" in item:
            mask |= _parse_nth(item)
        elif item.endswith("L"):
            mask |= 1 << (_LAST_OF + _weekday(item[:-1]))
        else:
            every = parse_item(DAY_OF_WEEK, item, key)
            mask |= (every | every >> 7) & _EVERY
    return mask


def _parse_nth(item: str) -> int:
    weekday, _, nth = item.partition("#")
    if len(nth) != 1 or nth not in "12345":
        refuse(DAY_OF_WEEK, f"{shown(item)} needs one digit from 1 to 5 after #")
    return 1 << (_LAST_OF + 7 * int(nth) + _weekday(weekday))


def _weekday(text: str) -> int:
    if not text:
        refuse(DAY_OF_WEEK, "a weekday is missing before L or #")
    return value(DAY_OF_WEEK, text) % 7


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
