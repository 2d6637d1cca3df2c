"""`@at 2026-12-01T09:00:00+01:00`: one instant (RFC 3339). Without an offset: a local time of the job's zone.

A local time that the clocks jump over is the first valid minute after the jump; one that comes twice is its
first pass, unless the job's `gap` and `fold` say otherwise.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

from ..errors import InvalidSchedule
from ..limits import LAST_INSTANT
from .base import DAY, EARLIEST, SECOND, Kind, Schedule, to_micros
from .fields import shown
from .zones import CLOCK_CORRECTION, Changes, spans

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Once(Schedule):
    """`slots` are microseconds since the epoch: one, or two for a repeated local time under `fold="both"`."""

    kind: ClassVar[Kind] = "once"
    slots: tuple[int, ...]

    def next_micros(self, after: int) -> int | None:
        """The slot, if it is strictly after `after`."""
        return next((slot for slot in self.slots if slot > after), None)


def parse_at(text: str, zone: ZoneInfo, changes: Changes) -> Once:
    """The instant in `text` (upper case, behind `@AT`)."""
    if not _MOMENT.fullmatch(text):
        raise InvalidSchedule("schedule", f"{shown(text)} is not an instant such as 2026-12-01T09:00:00+01:00")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidSchedule("schedule", f"{shown(text)} does not exist: {error}") from None
    if moment.tzinfo is not None:
        slots: tuple[int, ...] = (to_micros(moment),)
    else:
        slots = _resolve(to_micros(moment.replace(tzinfo=UTC)), zone, changes)
    if not slots:
        raise InvalidSchedule("schedule", f"{shown(text)} never comes: the clocks of {zone.key} jump over it")
    if not EARLIEST <= slots[0] <= slots[-1] < to_micros(LAST_INSTANT):
        raise InvalidSchedule("schedule", f"{shown(text)} lies outside the years 1 to 9998 in UTC")
    return Once(slots)


def _resolve(local: int, zone: ZoneInfo, changes: Changes) -> tuple[int, ...]:
    """The instants of a local time given as microseconds since the epoch as if it were UTC."""
    near = spans(zone, local // (DAY * SECOND))
    slots = [
        local - span.offset * SECOND
        for span in near
        if span.start * SECOND <= local - span.offset * SECOND < span.end * SECOND
    ]
    if slots:
        return {"first": tuple(slots[:1]), "last": tuple(slots[-1:]), "both": tuple(slots)}[changes.fold]
    for earlier, later in pairwise(near):
        low, high = later.start + earlier.offset, later.start + later.offset
        if changes.gap == "shift" and low * SECOND <= local < high * SECOND and high - low < CLOCK_CORRECTION:
            return ((high + -high % 60 - later.offset) * SECOND,)
    return ()
