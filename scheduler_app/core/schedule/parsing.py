"""From the text of a schedule to its value: one door for every kind, for checking and for running.

Guaranteed: text that `validate` accepts is text that runs, because both are `parse`. Any text is answered in
bounded time: what is longer than `LONGEST_TEXT` is refused unread.
"""

from datetime import datetime
from functools import lru_cache
from typing import Final

from ..errors import InvalidSchedule
from .base import Schedule, to_micros
from .cron import MACROS, parse_cron
from .fields import shown
from .interval import parse_every
from .once import parse_at
from .zones import Changes, Fold, Gap, find_zone

LONGEST_TEXT: Final = 1024
"""Characters. The longest sensible cron text, every value of every field in lists, has about 400."""


def parse(
    expr: str,
    timezone: str = "UTC",
    *,
    key: str = "",
    anchor: datetime | None = None,
    gap: Gap | None = None,
    fold: Fold | None = None,
) -> Schedule:
    """The schedule that `expr` means in the IANA zone `timezone`; InvalidSchedule if it means none.

    `key` (a job's name) picks the values of `H`; `anchor` (aware) is a slot of every `@every`, the Unix epoch
    unless given. `gap` and `fold` decide where fixed times fall when clocks change; None is Debian's rule,
    which is `shift` and `first`. Equal arguments give the same cached value.
    """
    if anchor is not None and anchor.tzinfo is None:
        raise InvalidSchedule("anchor", "must name its offset from UTC")
    if gap not in (None, "shift", "skip"):
        raise InvalidSchedule("gap", "must be shift or skip")
    if fold not in (None, "first", "last", "both"):
        raise InvalidSchedule("fold", "must be first, last or both")
    start = 0 if anchor is None else to_micros(anchor)
    return _parse(expr, timezone, key, start, Changes(gap or "shift", fold or "first"))


@lru_cache(maxsize=16_384)
def _parse(expr: str, timezone: str, key: str, anchor: int, changes: Changes) -> Schedule:
    zone = find_zone(timezone)
    text = _legible(expr)
    word, _, rest = text.partition(" ")
    if word == "@EVERY":
        return parse_every(rest.strip(), anchor)
    if word == "@AT":
        return parse_at(rest.strip(), zone, changes)
    if text[0] == "@":
        text = _macro(text)
    elif text.startswith(("RRULE", "DTSTART", "FREQ=")):
        raise InvalidSchedule("schedule", "recurrence rules (RRULE) are not read; write cron, @every or @at")
    return parse_cron(text, zone, key, changes)


def validate(expr: str, timezone: str = "UTC") -> None:
    """Raise InvalidSchedule, which names the field and the reason, unless `expr` can run in `timezone`."""
    parse(expr, timezone)


def next_fires(
    expr: str,
    timezone: str,
    after: datetime,
    k: int,
    *,
    key: str = "",
    anchor: datetime | None = None,
    gap: Gap | None = None,
    fold: Fold | None = None,
) -> list[datetime]:
    """The first `k` slots strictly after `after` (aware), in UTC; fewer if it ends. Options as in `parse`."""
    schedule = parse(expr, timezone, key=key, anchor=anchor, gap=gap, fold=fold)
    slots: list[datetime] = []
    slot = schedule.next(after)
    while slot is not None and len(slots) < k:
        slots.append(slot)
        slot = schedule.next(slot)
    return slots


def _legible(expr: str) -> str:
    """The text in upper case without outer blanks; others than ASCII stay, as some would turn into ASCII."""
    if len(expr) > LONGEST_TEXT:
        raise InvalidSchedule("schedule", f"is longer than {LONGEST_TEXT} characters")
    text = expr.strip().replace("\t", " ")
    if not text:
        raise InvalidSchedule("schedule", "must not be empty")
    if not text.isprintable():
        raise InvalidSchedule("schedule", "must be one line without control or invisible characters")
    return text.upper() if text.isascii() else text


def _macro(text: str) -> str:
    if text == "@REBOOT":
        raise InvalidSchedule("schedule", "@reboot names no time; many machines have no one start")
    if text not in MACROS:
        known = ", ".join(name.lower() for name in MACROS)
        raise InvalidSchedule("schedule", f"{shown(text.lower())} is not one of {known}, @every, @at")
    return MACROS[text]
