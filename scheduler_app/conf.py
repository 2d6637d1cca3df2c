"""Our settings (`EVERYSLOT` in Django's settings), checked across fields, all faults at once.

Durations are seconds. The cross-field rules are in `checks.py`, as system checks with ids and hints.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed


@dataclass(frozen=True, slots=True)
class Conf:
    """One frozen object; see docs/reference for what each value does."""

    queues: tuple[str, ...] = ("default",)
    lease: float = 30.0
    heartbeat: float = 10.0
    term: float = 5.0
    loop: float = 1.0
    dispatch_window: int = 10_000
    dispatch_batch: int = 2000
    dispatch_timeout: float = 60.0
    dispatch_timeout_max: float = 900.0
    record_batch: int = 500
    session_lock_grace: float = 1.5
    gather: float = 0.004
    stop_grace: float = 60.0
    soft_shutdown: float = 0.0
    consumer_timeout: float = 7200.0
    session_locks: bool = True
    redis_url: str = ""


@lru_cache(maxsize=1)
def conf() -> Conf:
    """The settings in force; raises ImproperlyConfigured naming every unknown or mistyped one."""
    given = dict(getattr(settings, "EVERYSLOT", {}))
    known = {field.name: field for field in fields(Conf)}
    faults = [f"EVERYSLOT[{name!r}] is unknown; known are {', '.join(sorted(known))}" for name in given.keys() - known]
    if "queues" in given:
        given["queues"] = tuple(given["queues"])
    defaults = Conf()
    for name in given.keys() & known.keys():
        want = type(getattr(defaults, name))
        value = float(given[name]) if want is float and isinstance(given[name], int) else given[name]
        if not isinstance(value, want):
            faults.append(f"EVERYSLOT[{name!r}] must be {want.__name__}, not {given[name]!r}")
        given[name] = value
    if faults:
        raise ImproperlyConfigured("; ".join(sorted(faults)))
    return Conf(**given)


def _forget(setting: str, **_: object) -> None:
    if setting == "EVERYSLOT":
        conf.cache_clear()


setting_changed.connect(_forget)
