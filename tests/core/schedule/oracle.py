"""A second, slow answer to "when does this cron schedule fire?", by walking every UTC minute of a few days.

It shares no code with the engine: it reads `fold` and the offsets of `zoneinfo` minute by minute, and it is given the
values of each field as sets instead of parsing them.
"""

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
CORRECTION = timedelta(hours=3)


class Item(NamedTuple):
    """One item of a field: its text, the plain values it stands for, and the last or n-th weekdays it names."""

    text: str
    values: frozenset[int] = frozenset()
    special: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expression:
    """Five fields of items, in the order of crontab(5)."""

    minute: tuple[Item, ...]
    hour: tuple[Item, ...]
    of_month: tuple[Item, ...]
    month: tuple[Item, ...]
    of_week: tuple[Item, ...]

    @property
    def fields(self) -> tuple[tuple[Item, ...], ...]:
        return (self.minute, self.hour, self.of_month, self.month, self.of_week)

    @property
    def text(self) -> str:
        return " ".join(",".join(item.text for item in field) for field in self.fields)

    @property
    def fixed(self) -> bool:
        return not (self.minute[0].text.startswith("*") or self.hour[0].text.startswith("*"))

    def matches(self, local: datetime) -> bool:
        """Whether the naive local minute matches."""
        return (
            _has(self.minute, local.minute)
            and _has(self.hour, local.hour)
            and _has(self.month, local.month)
            and self._on(local)
        )

    def _on(self, local: datetime) -> bool:
        length = monthrange(local.year, local.month)[1]
        weekday = local.isoweekday() % 7
        by_month = _has(self.of_month, local.day) or any(
            _is_special_day(special, local, length) for item in self.of_month for special in item.special
        )
        by_week = _has(self.of_week, weekday) or any(
            _is_special_weekday(special, local.day, weekday, length)
            for item in self.of_week
            for special in item.special
        )
        if self.of_month[0].text[0] in "*?" or self.of_week[0].text[0] in "*?":
            return by_month and by_week
        return by_month or by_week


def _has(items: tuple[Item, ...], number: int) -> bool:
    return any(number in item.values for item in items)


def _is_special_day(special: str, local: datetime, length: int) -> bool:
    last = length
    if special == "LW":
        while local.replace(day=last).isoweekday() > 5:
            last -= 1
    return local.day == last


def _is_special_weekday(special: str, day: int, weekday: int, length: int) -> bool:
    named, nth = int(special[0]) % 7, special[1:]
    if nth == "L":
        return weekday == named and day > length - 7
    return weekday == named and (day + 6) // 7 == int(nth[1:])


class Minute(NamedTuple):
    """A minute of real time: its instant, its local time, whether that comes twice (and which pass), what it skips."""

    instant: datetime
    local: datetime
    repeated: bool
    second_pass: bool
    jumped_over: tuple[datetime, ...]


@lru_cache(maxsize=64)
def minutes_of(zone: ZoneInfo, start: datetime, end: datetime) -> tuple[Minute, ...]:
    """Every minute from `start` to before `end` (UTC, whole minutes; offsets must be whole minutes too)."""
    walked: list[Minute] = []
    instant = start
    while instant < end:
        here, before = instant.astimezone(zone), (instant - MINUTE).astimezone(zone)
        local = here.replace(tzinfo=None, fold=0)
        first, second = here.replace(fold=0).utcoffset(), here.replace(fold=1).utcoffset()
        assert first is not None
        assert second is not None
        jump = local - before.replace(tzinfo=None, fold=0) - MINUTE
        over = int(jump / MINUTE) if timedelta(0) < jump < CORRECTION else 0
        walked.append(
            Minute(
                instant.astimezone(UTC),
                local,
                timedelta(0) < first - second < CORRECTION,
                here.fold == 1,
                tuple(local - MINUTE * (back + 1) for back in range(over)),
            )
        )
        instant += MINUTE
    return tuple(walked)


def fires(
    expression: Expression, minutes: tuple[Minute, ...], gap: str = "shift", fold: str = "first"
) -> list[datetime]:
    """The instants at which the expression fires within the minutes."""
    slots = []
    for minute in minutes:
        due = expression.matches(minute.local)
        if expression.fixed:
            if minute.repeated and fold != "both" and minute.second_pass == (fold == "first"):
                due = False
            if gap == "shift" and any(expression.matches(local) for local in minute.jumped_over):
                due = True
        if due:
            slots.append(minute.instant)
    return slots


@lru_cache(maxsize=4096)
def changes_in(zone: ZoneInfo, year: int) -> tuple[datetime, ...]:
    """The instants (UTC) at which the zone's offset changes within a year."""
    found = []
    instant, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    while instant < end:
        later = instant + timedelta(days=1)
        if instant.astimezone(zone).utcoffset() != later.astimezone(zone).utcoffset():
            at = instant
            while at.astimezone(zone).utcoffset() == instant.astimezone(zone).utcoffset():
                at += MINUTE
            found.append(at)
        instant = later
    return tuple(found)
