"""Our settings (`EVERYSLOT` in Django's settings), each checked by its rule, all faults at once.

Durations are seconds. The cross-field rules are in `checks.py`, as system checks with ids and hints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import lru_cache
from reprlib import repr as shortened
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

DAY: Final = 86_400.0  # seconds
YEAR: Final = 366 * DAY
COUNT_MOST: Final = 1_000_000
REDIS_SCHEMES: Final = ("redis", "rediss", "unix", "redis-sentinel")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a setting must be, in words with an example and as a question; `secret` values are not shown."""

    wanted: str
    keeps: Callable[[Any], bool]
    take: Callable[[Any], Any]
    secret: bool = False


def _ruled(default: Any, rule: Rule) -> Any:
    return field(default=default, metadata={"rule": rule})


def _seconds(default: float, most: float = DAY, *, zero: bool = False) -> Any:
    """Endless and absurd durations are refused: a lease that never runs out would hide every death."""
    least = "0 or more" if zero else "above 0"
    return _ruled(
        default,
        Rule(
            f"seconds, {least} and at most {most:.0f}, e.g. {default}",
            # Refuses nan too, of which no comparison holds.
            lambda value: _is(value, int, float) and (value >= 0 if zero else value > 0) and value <= most,
            float,
        ),
    )


def _count(default: int) -> Any:
    return _ruled(
        default,
        Rule(
            f"a whole number from 1 to {COUNT_MOST}, e.g. {default}",
            lambda value: _is(value, int) and 1 <= value <= COUNT_MOST,
            int,
        ),
    )


def _names(default: tuple[str, ...]) -> Any:
    return _ruled(
        default,
        Rule(
            "a list of different names, one of them 'default', e.g. ['default', 'fast']",
            lambda value: (
                _is(value, list, tuple)
                and all(_is(name, str) and name.strip() for name in value)
                and len(set(value)) == len(value)
                and "default" in value
            ),
            tuple,
        ),
    )


def _yes_or_no(default: bool) -> Any:
    return _ruled(default, Rule(f"True or False, e.g. {default}", lambda value: isinstance(value, bool), bool))


def _redis(default: str) -> Any:
    schemes = ", ".join(f"{scheme}://" for scheme in REDIS_SCHEMES)
    return _ruled(
        default,
        Rule(
            f"'' or a URL that starts with one of {schemes}, e.g. 'redis://host:6379/0'",
            lambda value: _is(value, str) and (not value or _scheme(value) in REDIS_SCHEMES),
            str,
            secret=True,
        ),
    )


def _is(value: Any, *types: type) -> bool:
    """Whether it is one of these; True and False are no numbers here."""
    return isinstance(value, types) and not isinstance(value, bool)


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class Conf:
    """One frozen object; see docs/reference for what each value does."""

    queues: tuple[str, ...] = _names(("default",))
    lease: float = _seconds(30.0)
    heartbeat: float = _seconds(10.0)
    term: float = _seconds(5.0)
    loop: float = _seconds(1.0, most=60)
    dispatch_window: int = _count(10_000)
    dispatch_batch: int = _count(2000)
    dispatch_timeout: float = _seconds(60.0)
    dispatch_timeout_max: float = _seconds(900.0)
    record_batch: int = _count(500)
    session_lock_grace: float = _seconds(1.5, zero=True)
    gather: float = _seconds(0.004, zero=True)
    cancel_grace: float = _seconds(30.0, zero=True)
    unknown_task_wait: float = _seconds(1800.0, zero=True)
    stop_grace: float = _seconds(60.0)
    soft_shutdown: float = _seconds(0.0, zero=True)
    consumer_timeout: float = _seconds(1800.0, most=YEAR)  # as RabbitMQ has it by itself
    session_locks: bool = _yes_or_no(True)
    redis_url: str = _redis("")


@lru_cache(maxsize=1)
def conf() -> Conf:
    """The settings in force; raises ImproperlyConfigured naming every unknown or unusable one."""
    given = getattr(settings, "EVERYSLOT", {})
    faults = _faults(given)
    if faults:
        raise ImproperlyConfigured("\n  - ".join(["the setting EVERYSLOT is not usable:", *faults]))
    return Conf(**{each.name: _rule(each).take(given[each.name]) for each in fields(Conf) if each.name in given})


def _faults(given: Any) -> list[str]:
    if not isinstance(given, Mapping):
        return [f"EVERYSLOT must be a dictionary, e.g. {{'lease': 30.0}}, not {shortened(given)}"]
    known = {each.name: _rule(each) for each in fields(Conf)}
    faults = [f"EVERYSLOT[{name!r}] is unknown; known are {', '.join(sorted(known))}" for name in given.keys() - known]
    for name in given.keys() & known.keys():
        rule, value = known[name], given[name]
        if not rule.keeps(value):
            shown = type(value).__name__ if rule.secret else shortened(value)
            faults.append(f"EVERYSLOT[{name!r}] must be {rule.wanted}, not {shown}")
    return sorted(faults)


def _rule(each: Field[Any]) -> Rule:
    rule: Rule = each.metadata["rule"]
    return rule


def _forget(setting: str, **_: object) -> None:
    if setting == "EVERYSLOT":
        conf.cache_clear()


setting_changed.connect(_forget)
