"""One cron field becomes one integer: bit n is set when the value n matches.

Items are `*`, `n`, `a-b` (ascending), `n/step` (n to the end), `a-b/step`, `*/step`, `H`, `H(a-b)` and
`H/step`, in lists with commas. Only ASCII digits and three-letter names count: `int()` would also take
underscores, signs and the digits of other scripts.
"""

import re
from hashlib import blake2b
from typing import Final, NamedTuple, NoReturn

from ..errors import InvalidSchedule


class Field(NamedTuple):
    """A field: its name in messages, its bounds, the last value that `*` and that `H` cover, its names."""

    name: str
    low: int
    high: int
    star_high: int
    spread_high: int
    names: dict[str, int]


_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

MINUTE: Final = Field("minute", 0, 59, 59, 59, {})
HOUR: Final = Field("hour", 0, 23, 23, 23, {})
# H stays within 1 to 28, so that a job spread over the month runs in every month.
DAY_OF_MONTH: Final = Field("day of month", 1, 31, 31, 28, {})
MONTH: Final = Field("month", 1, 12, 12, 12, {name: n for n, name in enumerate(_MONTHS, 1)})
# 7 is Sunday too; it keeps its own bit until `days` folds it, so that ranges such as 4-7 ascend.
DAY_OF_WEEK: Final = Field("day of week", 0, 7, 6, 6, {name: n for n, name in enumerate(_DAYS)})

_SPREAD: Final = re.compile(r"H(?:\((\d{1,2})-(\d{1,2})\))?")


def refuse(field: Field, reason: str) -> NoReturn:
    """Raise InvalidSchedule that names the field."""
    raise InvalidSchedule(field.name, reason)


def shown(text: str) -> str:
    """A piece of someone's input, quoted and short enough for a message."""
    return repr(text if len(text) <= 24 else text[:21] + "...")


def parse_field(field: Field, text: str, key: str) -> int:
    """The mask of a whole field, given in upper case. InvalidSchedule names the field."""
    if text == "*":
        return _stretch(field.low, field.star_high)
    mask = 0
    for item in text.split(","):
        mask |= parse_item(field, item, key)
    return mask


def parse_item(field: Field, item: str, key: str) -> int:
    """The mask of one item of a list."""
    if len(item) <= 2 and item.isdigit():
        return 1 << value(field, item)
    base, slash, step_text = item.partition("/")
    step = _step(field, step_text) if slash else 1
    if base.startswith("H"):
        return _spread(field, base, step if slash else 0, key)
    if base == "*":
        low, high = field.low, field.star_high
    else:
        first, dash, last = base.partition("-")
        low = value(field, first)
        high = value(field, last) if dash else field.high if slash else low
        if high < low:
            refuse(field, f"the range {shown(base)} runs backwards; write it in two parts")
    return _stretch(low, high) if step == 1 else _progression(low, high, step)


def value(field: Field, text: str) -> int:
    """A number or a name of the field."""
    named = field.names.get(text)
    if named is not None:
        return named
    if not (text.isascii() and text.isdigit()) or len(text) > 4:
        allowed = f"{field.low} to {field.high}" + (f" or {'|'.join(field.names)}" if field.names else "")
        refuse(field, f"{shown(text)} is not one of {allowed}" if text else "a value is missing")
    number = int(text)
    if not field.low <= number <= field.high:
        refuse(field, f"{number} is outside {field.low} to {field.high}")
    return number


def _step(field: Field, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 4:
        refuse(field, f"the step {shown(text)} is not a whole number from 1 to 9999")
    step = int(text)
    if step == 0:
        refuse(field, "a step of 0 would never move on")
    return step


def _spread(field: Field, base: str, step: int, key: str) -> int:
    """`H`: a value that the job's key picks for ever; with a step, the value where the steps begin."""
    match = _SPREAD.fullmatch(base)
    if match is None:
        refuse(field, f"{shown(base)} is not H or H(a-b)")
    low, high = field.low, field.spread_high
    if match[1] is not None:
        low, high = value(field, match[1]), value(field, match[2])
        if high < low:
            refuse(field, f"the range {shown(base)} runs backwards")
    digest = blake2b(f"{field.name}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    choices = high - low + 1
    chosen = int.from_bytes(digest) % (min(step, choices) if step else choices)
    return _progression(low + chosen, high, step) if step else 1 << (low + chosen)


def _stretch(low: int, high: int) -> int:
    return ((1 << (high - low + 1)) - 1) << low


def _progression(low: int, high: int, step: int) -> int:
    mask = 0
    for number in range(low, high + 1, step):
        mask |= 1 << number
    return mask
