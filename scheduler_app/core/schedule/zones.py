"""Where a zone's clocks stand: stretches of constant UTC offset around a day, asked of `zoneinfo` and cached.

Guaranteed: the same answer for the same zone and day. It would break if a zone changed its offset twice
within one UTC day; in the IANA data the shortest stretch since 1900 is four days (Africa/Freetown, 1939).
"""

import re
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from ..errors import InvalidSchedule
from .base import DAY, EARLIEST, LATEST, SECOND

CLOCK_CORRECTION: Final = 3 * 3600
"""Seconds. A jump this long or longer corrects the clock, it is not daylight saving: the new time simply
holds, as in Debian's cron(8)."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]*(/[A-Za-z0-9_+\-]+)*")
_NOT_PLACES: Final = ("Factory", "localtime", "posixrules", "posix/", "right/", "SystemV/")
# Offsets are asked a day inside the range of datetime, so that no local time falls off its edge.
_FIRST_ASKED: Final = EARLIEST // SECOND + DAY
_LAST_ASKED: Final = LATEST // SECOND - DAY


Gap = Literal["shift", "skip"]
Fold = Literal["first", "last", "both"]


class Changes(NamedTuple):
    """What a fixed local time means when the clocks jump over it (`gap`) or when it comes twice (`fold`)."""

    gap: Gap
    fold: Fold


class Span(NamedTuple):
    """A stretch of constant offset: UTC seconds since the epoch, `end` excluded; offset in seconds east."""

    start: int
    end: int
    offset: int


@lru_cache(maxsize=1024)
def find_zone(name: str) -> ZoneInfo:
    """The IANA zone of that name, spelled as IANA spells it; InvalidSchedule for anything else."""
    if not name:
        raise InvalidSchedule("timezone", "must not be empty; write an IANA name such as Europe/Berlin")
    if len(name) > 64 or not _NAME.fullmatch(name) or name.startswith(_NOT_PLACES):
        raise InvalidSchedule("timezone", f"{name[:64]!r} is not an IANA time zone name")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidSchedule("timezone", f"{name!r} is not a known IANA time zone") from None


def _offset_at(zone: ZoneInfo, second: int) -> int:
    asked = min(max(second, _FIRST_ASKED), _LAST_ASKED)
    offset = datetime.fromtimestamp(asked, zone).utcoffset()
    return 0 if offset is None else offset.days * DAY + offset.seconds


@lru_cache(maxsize=65_536)
def _offset_at_midnight(zone: ZoneInfo, day: int) -> int:
    return _offset_at(zone, day * DAY)


def _change_within(zone: ZoneInfo, day: int, before: int) -> int:
    """The second within UTC `day` at which the offset stops being `before`."""
    low, high = day * DAY, (day + 1) * DAY
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_at(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=16_384)
def spans(zone: ZoneInfo, day: int) -> tuple[Span, ...]:
    """The spans of `zone` over three UTC days: `day` (days since the epoch) and its two neighbours.

    That covers every instant whose local date is `day`, and the clock changes that move a slot of that date.
    """
    found: list[Span] = []
    start, offset = (day - 1) * DAY, _offset_at_midnight(zone, day - 1)
    for passing in (day - 1, day, day + 1):
        after = _offset_at_midnight(zone, passing + 1)
        if after != offset:
            change = _change_within(zone, passing, offset)
            found.append(Span(start, change, offset))
            start, offset = change, after
    found.append(Span(start, (day + 2) * DAY, offset))
    return tuple(found)
