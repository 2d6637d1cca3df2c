"""A schedule said in plain English, from the parsed value and not from its text: so it tells what runs, and the
two day fields are joined the way the engine joins them.
"""

from datetime import timedelta

from .base import Schedule, to_instant
from .cron import Cron
from .days import Days
from .interval import Interval
from .once import Once
from .parsing import parse

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_NTH = ("last", "first", "second", "third", "fourth", "fifth")


def explain(expr: str, timezone: str = "UTC", *, key: str = "") -> str:
    """One sentence, such as "At 09:00, on Monday to Friday, UTC."; InvalidSchedule as `parse` raises it."""
    return _sentence(parse(expr, timezone, key=key))


def _sentence(schedule: Schedule) -> str:
    if isinstance(schedule, Cron):
        zone = "UTC" if schedule.zone.key == "UTC" else f"{schedule.zone.key} time"
        times = _times(schedule.minutes, schedule.hours)
        dates = _dates(schedule.days) or ("" if "minute" in times else "every day")
        said = ", ".join(part for part in (times, dates, zone) if part) + "."
    elif isinstance(schedule, Interval):
        said = f"every {_duration(schedule.every)}, counted from {_moment(schedule.anchor)}."
    elif isinstance(schedule, Once):
        said = f"once, at {_listed([_moment(slot) for slot in schedule.slots])}."
    return said[0].upper() + said[1:]


def _moment(micros: int) -> str:
    return f"{to_instant(micros):%Y-%m-%d %H:%M:%S} UTC"


def _times(minutes: int, hours: int) -> str:
    at, during = _values(minutes), _values(hours)
    if len(at) * len(during) <= 6:
        return "at " + _listed([f"{hour:02}:{minute:02}" for hour in during for minute in at])
    step = _even_step(at, 60)
    if step:
        often = "every minute" if step == 1 else f"every {step} minutes"
        if len(during) == 24:
            return often
        if during[-1] - during[0] == len(during) - 1:
            return f"{often} from {during[0]:02}:00 to {during[-1]:02}:59"
        return f"{often} {_hours(during)}"
    return f"at minute {_runs([str(n) for n in at], at)} {_hours(during)}"


def _hours(during: list[int]) -> str:
    step = _even_step(during, 24)
    if step:
        return "of every hour" if step == 1 else f"of every {step} hours from midnight on"
    return f"of hour {_runs([str(n) for n in during], during)}"


def _dates(days: Days) -> str:
    of_month, of_week = _days_of_month(days.of_month), _days_of_week(days.of_week)
    if days.either:
        said = f"{of_month} and also {of_week}" if of_month and of_week else ""
    else:
        said = f"{of_month}, but only {of_week}" if of_month and of_week else of_month or of_week
    months = _values(days.months)
    when = "" if len(months) == 12 else " in " + _runs([_MONTHS[n - 1] for n in months], months)
    return (said or "every day") + when if said or when else ""


def _days_of_month(mask: int) -> str:
    """The phrase for the days that a mask names; empty when it names all."""
    numbers = [n for n in _values(mask) if n <= 31]
    if len(numbers) == 31:
        return ""
    parts = [f"day {_runs([str(n) for n in numbers], numbers)}"] if numbers else []
    parts += ["the last day"] if mask >> 32 & 1 else []
    parts += ["the last weekday (Monday to Friday)"] if mask >> 33 & 1 else []
    return f"on {_listed(parts)} of the month"


def _days_of_week(mask: int) -> str:
    """The phrase for the weekdays that a mask names; empty when it names all."""
    every = [n for n in _values(mask) if n < 7]
    if len(every) == 7:
        return ""
    parts = [_runs([_WEEKDAYS[n] for n in every], every)] if every else []
    for index in _values(mask >> 7):
        nth, weekday = divmod(index, 7)
        parts.append(f"the {_NTH[nth]} {_WEEKDAYS[weekday]} of the month")
    return f"on {_listed(parts)}"


def _duration(micros: int) -> str:
    left = timedelta(microseconds=micros)
    parts = []
    for name, unit in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, left = divmod(left, timedelta(seconds=unit))
        if count:
            parts.append(f"{count} {name}" + ("s" if count > 1 else ""))
    return " ".join(parts)


def _even_step(values: list[int], whole: int) -> int:
    """The step of values that divide a whole evenly from 0 on (every 5 minutes of 60), else 0."""
    step = whole // len(values)
    return step if values == list(range(0, whole, step)) and step * len(values) == whole else 0


def _values(mask: int) -> list[int]:
    return [n for n in range(mask.bit_length()) if mask >> n & 1]


def _runs(names: list[str], values: list[int]) -> str:
    """The names, with three and more neighbours said as "a to b"."""
    parts: list[str] = []
    start = 0
    for index in range(1, len(values) + 1):
        if index == len(values) or values[index] != values[index - 1] + 1:
            run = names[start:index]
            parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else run
            start = index
    return _listed(parts)


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
