"""`@every 90s`: a slot each time the interval has passed, on a lattice through the anchor.

Guaranteed: slots never drift, because each is anchor + n x interval in real time, whatever was late,
restarted or edited, and whatever the clocks of any zone do. The lattice reaches both ways from the anchor;
a job's `start_at`, not its anchor, is what keeps slots from coming early.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from ..errors import InvalidSchedule
from .base import DAY, SECOND, Kind, Schedule
from .fields import shown

_UNITS: Final = (7 * DAY, DAY, 3600, 60, 1)
_LENGTH: Final = re.compile("".join(rf"(?:(\d{{1,9}}){unit})?" for unit in "WDHMS"), re.ASCII)
LONGEST: Final = 36_525 * DAY
"""Seconds: a hundred years."""


@dataclass(frozen=True, slots=True)
class Interval(Schedule):
    """`every` and `anchor` are in microseconds, the anchor since the epoch."""

    kind: ClassVar[Kind] = "interval"
    every: int
    anchor: int

    def next_micros(self, after: int) -> int | None:
        """The first point of the lattice strictly after `after`."""
        return after + self.every - (after - self.anchor) % self.every


def parse_every(text: str, anchor: int) -> Interval:
    """The interval in `text` (upper case, behind `@EVERY`): weeks down to seconds.

    Grammar: `[nW][nD][nH][nM][nS]`, at least one part, whole numbers, such as `90S`, `1H30M`, `2D`. A day is
    24 hours and a week seven days of real time. From one second to a hundred years.
    """
    match = _LENGTH.fullmatch(text) if text else None
    if match is None:
        raise InvalidSchedule("schedule", f"{shown(text)} is not an interval such as 90s, 1h30m or 2d")
    seconds = sum(int(number) * unit for number, unit in zip(match.groups("0"), _UNITS, strict=True))
    if not 1 <= seconds <= LONGEST:
        raise InvalidSchedule("schedule", "an interval lasts from one second to a hundred years")
    return Interval(seconds * SECOND, anchor)
