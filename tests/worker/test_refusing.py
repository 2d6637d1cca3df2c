"""Calls that are refused where they are made, by the field and with the reason; nothing is left of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from celery import chain, chord, group

from scheduler_app import durable_task
from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.lifecycle import catalog
from scheduler_app.models import JobRun
from scheduler_app.worker.task import InvalidArguments
from tests.support.brokers import FakeBroker
from tests.worker.test_calling import add, anything, broker, published, runs

__all__ = ["broker"]
pytestmark = pytest.mark.django_db


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a task id that is no UUID": ({"task_id": "order-17"}, "task_id"),
    "an empty task id": ({"task_id": ""}, "task_id"),
    "an unknown queue": ({"queue": "nowhere"}, "queue"),
    "a queue that is a number": ({"queue": 5}, "queue"),
    "a queue that is a list": ({"queue": ["default"]}, "queue"),
    "a priority of 11": ({"priority": 11}, "priority"),
    "a priority of 10": ({"priority": 10}, "priority"),
    "a negative priority": ({"priority": -1}, "priority"),
    "a priority in words": ({"priority": "high"}, "priority"),
    "half a priority": ({"priority": 4.5}, "priority"),
    "a time limit of zero": ({"time_limit": 0}, "time_limit"),
    "a negative time limit": ({"time_limit": -1}, "time_limit"),
    "a time limit in words": ({"time_limit": "long"}, "time_limit"),
    "a time limit that no column holds": ({"time_limit": 2**31}, "time_limit"),
    "no attempts": ({"max_attempts": 0}, "max_attempts"),
    "attempts in words": ({"max_attempts": "many"}, "max_attempts"),
    "attempts that no column holds": ({"max_attempts": 2**31}, "max_attempts"),
    "a countdown in words": ({"countdown": "soon"}, "countdown"),
    "a countdown that is true": ({"countdown": True}, "countdown"),
    "a countdown that is not a number": ({"countdown": float("nan")}, "countdown"),
    "an endless countdown": ({"countdown": float("inf")}, "countdown"),
    "a countdown past the end of time": ({"countdown": 1e18}, "countdown"),
    "an eta in words": ({"eta": "tomorrow"}, "eta"),
    "an eta that is a number": ({"eta": 5}, "eta"),
    "expires in words": ({"expires": "soon"}, "expires"),
    "expires that is true": ({"expires": True}, "expires"),
    "expires that is not a number": ({"expires": float("nan")}, "expires"),
    "expires past the end of time": ({"expires": 1e18}, "expires"),
    "a request key that is a number": ({"request_key": 5}, "request_key"),
    "a request key that no column holds": ({"request_key": "k" * 256}, "request_key"),
    "a request key with a NUL character": ({"request_key": "a\x00b"}, "request_key"),
    "a concurrency key that no column holds": ({"concurrency_key": "k" * 256}, "concurrency_key"),
    "an ordering key that is nothing": ({"ordering_key": None}, "ordering_key"),
    "arguments that are text": ({"args": "12"}, "args"),
    "arguments that are a number": ({"args": 5}, "args"),
    "keyword arguments that are a list": ({"kwargs": ["x"]}, "payload"),
    "keyword arguments whose names are numbers": ({"kwargs": {1: 2}}, "payload"),
    "a link that is text": ({"link": "add"}, "link"),
    "a link that is no signature": ({"link": [{"no": "task"}]}, "link"),
    "an error link that is a function": ({"link_error": print}, "link_error"),
}


@pytest.mark.parametrize(("given", "field"), BAD.values(), ids=BAD.keys())
def test_bad_options_are_refused_by_name(broker: FakeBroker, given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidDefinition, match=f"^{field}: ") as refused:
        anything.apply_async(**given)
    assert refused.value.field == field
    assert runs() == published(broker) == set()


def _endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def _deep() -> list[Any]:
    return json.loads("[" * 300 + "]" * 300)


UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "an object": (object, "JSON"),
    "a set": (lambda: {1}, "JSON"),
    "not a number": (lambda: float("nan"), "JSON"),
    "a value that holds itself": (_endless, "JSON"),
    "a NUL character": (lambda: "a\x00b", "NUL"),
    "a lone surrogate": (lambda: "\ud800", "surrogate"),
    "more than 256 KB": (lambda: "x" * 256 * 1024, "the limit is 262144"),
    "deep nesting": (_deep, "deeper than 200"),
}


@pytest.mark.parametrize(("value", "reason"), UNFIT.values(), ids=UNFIT.keys())
@pytest.mark.parametrize("field", ["args", "payload"])
def test_arguments_that_cannot_be_stored_are_refused_by_field(
    field: str, value: Callable[[], Any], reason: str
) -> None:
    given = {"args": (value(),)} if field == "args" else {"kwargs": {"x": value()}}
    with pytest.raises(InvalidDefinition, match=f"^{field}: .*{reason}") as refused:
        anything.apply_async(**given)
    assert refused.value.field == field
    assert runs() == set()


def test_arguments_of_almost_256_kb_are_taken() -> None:
    anything.delay("x" * (256 * 1024 - 10))
    assert len(JobRun.objects.get().args[0]) == 256 * 1024 - 10


@pytest.mark.parametrize(
    "call",
    [
        add.delay,
        lambda: add.delay(1, 2, 3),
        lambda: add.delay(1, z=2),
        lambda: add.delay(1, x=2),
        lambda: add.apply_async(kwargs={"y": 1}),
        lambda: add.s().delay(),
    ],
    ids=["too few", "too many", "an unknown name", "one twice", "one missing", "from a signature"],
)
def test_arguments_that_cannot_call_the_task_are_a_type_error(call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidArguments, match=r"^payload: does not fit .*add\(x, y=0\)") as refused:
        call()
    assert isinstance(refused.value, TypeError)
    assert runs() == set()


CHORDS: dict[str, Callable[[], Any]] = {
    "a chord": lambda: chord([add.s(1), add.s(2)], anything.s()).delay(),
    "a chord of one": lambda: chord([add.s(1)])(anything.s()),
    "a group in the middle of a chain": lambda: chain(add.s(1), group(add.s(1), add.s(2)), anything.s()).delay(),
    "a group at the head of a chain": lambda: chain(group(add.s(1), add.s(2)), anything.s()).delay(),
    "a chord as a link": lambda: add.apply_async((1,), link=chord([add.s(1), add.s(2)], anything.s())),
    "a chord deep in a link": lambda: add.apply_async((1,), link=group(chain(add.s(1), chord([add.s(1)], add.s(1))))),
}


@pytest.mark.parametrize("call", CHORDS.values(), ids=CHORDS.keys())
def test_chords_are_refused_with_the_reason(broker: FakeBroker, call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidDefinition, match=r"^canvas: chords are not supported by durable tasks"):
        call()
    assert runs() == published(broker) == set()


def test_replace_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidDefinition, match=r"^replace: .*not supported by durable tasks: call a chain"):
        add.replace(add.s(1, 2))


DECLARED: dict[str, tuple[dict[str, Any], str]] = {
    "a time limit of zero": ({"time_limit": 0}, "time_limit: must be 1 or more"),
    "a time limit in words": ({"time_limit": "long"}, "time_limit: must be a whole number"),
    "a time limit that no column holds": ({"time_limit": 2**31}, "time_limit: must be 2147483647 or less"),
    "a priority of 10": ({"priority": 10}, "priority: must be from 0 to 9"),
    "a bad expression": ({"schedule": "0 25 * * *"}, "hour: .*outside 0 to 23"),
    "a bad zone": ({"schedule": "0 9 * * *", "timezone": "Mars/Base"}, "timezone: "),
    "no deadline at all": ({"starting_deadline": 0}, "starting_deadline"),
    "a bound of no time": ({"run_timeout": 0}, "run_timeout"),
    "text that is no task's option": ({"retry_on": "errors"}, "retry_on|class"),
}


@pytest.mark.parametrize(("options", "said"), DECLARED.values(), ids=DECLARED)
def test_a_declaration_that_no_run_could_have_is_refused_where_it_stands(options: dict[str, Any], said: str) -> None:
    before = catalog.all_tasks()
    with pytest.raises((TypeError, ValueError), match=said):
        durable_task(name="tests.declared", **options)(anything)
    assert catalog.all_tasks() == before
