"""Our settings: each fault names the setting, what it must be and an example, and all come at once."""

from __future__ import annotations

import ast
from dataclasses import MISSING, fields
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from config.env import Env, EnvironmentFault, read_env
from scheduler_app.conf import Conf, conf

DAY, YEAR = 86_400, 366 * 86_400
NAMES = [field.name for field in fields(Conf)]
SECONDS = [field.name for field in fields(Conf) if field.type == "float"]
COUNTS = [field.name for field in fields(Conf) if field.type == "int"]
MAY_BE_ZERO = {"cancel_grace", "unknown_task_wait", "soft_shutdown", "session_lock_grace", "gather"}
DATABASE = {"DATABASE_URL": "postgresql://h/x", "DEBUG": "true"}


def faults(settings: Settings, given: object) -> list[str]:
    settings.EVERYSLOT = given
    with pytest.raises(ImproperlyConfigured) as caught:
        conf()
    return str(caught.value).removeprefix("the setting EVERYSLOT is not usable:\n  - ").split("\n  - ")


BAD: dict[str, tuple[str, Any]] = {
    "a name instead of a list of names": ("queues", "default"),
    "no queues": ("queues", ()),
    "nothing for queues": ("queues", None),
    "a number for queues": ("queues", 3),
    "a number among the queues": ("queues", ["default", 3]),
    "a queue without a name": ("queues", ["default", " "]),
    "a queue named twice": ("queues", ["default", "fast", "fast"]),
    "queues without the default one": ("queues", ["fast"]),
    "queues in no order": ("queues", {"default"}),
    "yes and no as a number": ("lease", True),
    "a text for seconds": ("lease", "30"),
    "nothing for seconds": ("lease", None),
    "more than a float holds": ("lease", 10**400),
    "a minute and more for a loop": ("loop", 60.5),
    "yes and no as a count": ("dispatch_batch", True),
    "a part of a run": ("dispatch_window", 0.5),
    "a count as seconds": ("record_batch", 500.0),
    "a window without end": ("dispatch_window", 1_000_001),
    "a number for yes and no": ("session_locks", 1),
    "a text for yes and no": ("session_locks", "false"),
    "nothing for Redis": ("redis_url", None),
    "another protocol for Redis": ("redis_url", "http://h"),
    **{f"{name} of {value!r}": (name, value) for name in SECONDS for value in (-1, float("nan"), float("inf"), 1e300)},
    **{f"{name} of zero": (name, 0) for name in [*SECONDS, *COUNTS] if name not in MAY_BE_ZERO},
    **{f"{name} of {value}": (name, value) for name in COUNTS for value in (-1, 10**9)},
}


@pytest.mark.parametrize(("name", "value"), BAD.values(), ids=BAD.keys())
def test_what_is_refused(settings: Settings, name: str, value: Any) -> None:
    found = faults(settings, {name: value})
    assert len(found) == 1
    assert found[0].startswith(f"EVERYSLOT['{name}'] must be ")
    assert ", e.g. " in found[0]


GOOD: dict[str, tuple[str, Any]] = {
    "a list of queues": ("queues", ["default", "fast"]),
    "whole seconds": ("lease", 45),
    "parts of a second": ("lease", 0.5),
    "a loop of a minute": ("loop", 60),
    "a single run": ("dispatch_window", 1),
    "the widest window": ("dispatch_window", 1_000_000),
    "no session locks": ("session_locks", False),
    "a Redis": ("redis_url", "rediss://:secret@h:6379/0"),
    "no Redis": ("redis_url", ""),
    "a consumer timeout of a year": ("consumer_timeout", YEAR),
    **{f"{name} of zero": (name, 0) for name in sorted(MAY_BE_ZERO)},
    **{f"{name} of a day": (name, DAY) for name in SECONDS if name != "loop"},
}


@pytest.mark.parametrize(("name", "value"), GOOD.values(), ids=GOOD.keys())
def test_what_is_accepted(settings: Settings, name: str, value: Any) -> None:
    settings.EVERYSLOT = {name: value}
    found = getattr(conf(), name)
    assert found == (tuple(value) if name == "queues" else value)
    assert type(found) is type(getattr(Conf(), name))


def test_all_faults_come_at_once(settings: Settings) -> None:
    found = faults(settings, {**dict.fromkeys(NAMES), "leese": 30, 5: 6})
    assert len(found) == len(NAMES) + 2
    assert {fault.split(" ")[0] for fault in found} == {f"EVERYSLOT[{name!r}]" for name in [*NAMES, "leese", 5]}


def test_an_unknown_setting_is_told_with_the_known_ones(settings: Settings) -> None:
    assert faults(settings, {"leese": 30}) == [f"EVERYSLOT['leese'] is unknown; known are {', '.join(sorted(NAMES))}"]


@pytest.mark.parametrize("given", [None, "queues", ["queues"], 3])
def test_what_is_no_dictionary_is_refused(settings: Settings, given: object) -> None:
    found = faults(settings, given)
    assert len(found) == 1
    assert found[0].startswith("EVERYSLOT must be a dictionary, e.g. {")


@pytest.mark.parametrize("name", NAMES)
def test_the_example_in_a_fault_can_be_used(settings: Settings, name: str) -> None:
    example = faults(settings, {name: None})[0].partition(", e.g. ")[2].rpartition(", not ")[0]
    settings.EVERYSLOT = {name: ast.literal_eval(example)}
    conf()


def test_without_the_setting_the_defaults_hold(settings: Settings) -> None:
    del settings.EVERYSLOT
    assert conf() == Conf()
    for field in fields(Conf):
        assert field.default is not MISSING
        settings.EVERYSLOT = {field.name: field.default}
        assert conf() == Conf()


def test_a_fault_never_shows_a_password_and_stays_short(settings: Settings) -> None:
    found = faults(settings, {"redis_url": "ftp://:hunter2@h", "queues": "x" * 10_000})
    assert "hunter2" not in "".join(found)
    assert max(map(len, found)) < 300


@pytest.mark.parametrize(
    "name", [name for name in [*SECONDS, *COUNTS] if f"EVERYSLOT_{name.upper()}" in Env.model_fields]
)
@pytest.mark.parametrize("value", [-1, 0, 1, 60, 61, DAY, DAY + 1, 1_000_000, 1_000_001, YEAR, YEAR + 1])
def test_the_environment_and_the_setting_have_the_same_limits(settings: Settings, name: str, value: int) -> None:
    settings.EVERYSLOT = {name: value}
    assert accepted(conf) == accepted(lambda: read_env({**DATABASE, f"EVERYSLOT_{name.upper()}": str(value)}))


def accepted(read: Any) -> bool:
    try:
        read()
    except (ImproperlyConfigured, EnvironmentFault):
        return False
    return True
