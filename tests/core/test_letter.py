"""What is read of a dead message, whatever is in it: never an error, always something that PostgreSQL can store."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from scheduler_app.broker.deaths import BODY_BYTES, read_death
from scheduler_app.core.letter import Letter
from scheduler_app.core.message import ATTEMPT_HEADER, BODY, Hint, headers

RUN = UUID(int=7)
OURS = headers(Hint(RUN, "tests.report", 2, "default", 4))


def deep(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = {"inner": [value]}
    return value


def cyclic() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


HOSTILE: dict[str, Any] = {
    "none at all": None,
    "a text instead": "headers",
    "a list instead": [("id", 1)],
    "an id that is a number": {"id": 7},
    "an id that is a list": {"id": [str(RUN)]},
    "an id with a NUL": {"id": "a\x00"},
    "a task that is an object": {"task": {"name": "x"}},
    "a task with a NUL": {"task": "a\x00b\ud800"},
    "a task that is huge": {"task": "t" * 100_000},
    "an attempt beyond its column": {"id": str(RUN), ATTEMPT_HEADER: 2**40},
    "an attempt below nothing": {"id": str(RUN), ATTEMPT_HEADER: -1},
    "an attempt that is text": {"id": str(RUN), ATTEMPT_HEADER: "2"},
    "deaths that are text": {"x-death": "yes"},
    "deaths that are numbers": {"x-death": [1, 2]},
    "no deaths": {"x-death": []},
    "a reason that is an object": {"x-first-death-reason": {"why": "\x00"}},
    "a queue that is huge": {"x-first-death-queue": "q" * 10_000},
    "keys that are no text": {1: "a", None: "b", (2, 3): "c", b"d": "e"},
    "a key with a NUL": {"a\x00": "\x00"},
    "many keys": {f"key{number}": "v" * 50 for number in range(5000)},
    "deep": deep(5000),
    "inside itself": cyclic(),
    "numbers beyond everything": {"a": 10**400, "b": float("nan"), "c": -(2**63), "d": float("inf")},
    "an instant, bytes and an object": {"a": datetime(2026, 12, 1, tzinfo=UTC), "b": b"\xff\x00", "c": object},
}

BODIES: dict[str, Any] = {
    "empty": b"",
    "text": BODY,
    "not UTF-8": b"\xff\xfe\x00\x80",
    "NULs": b"\x00" * 1000,
    "huge": b"x" * 1_000_000,
    "a lone surrogate": "\ud800",
    "no text at all": {"a": 1},
    "nothing": None,
    "a view": memoryview(b"seen"),
}


def assert_can_be_stored(letter: Letter) -> None:
    columns = {"task": (letter.task, 255), "queue": (letter.queue, 100), "reason": (letter.reason, 100)}
    for name, (text, limit) in columns.items():
        assert len(text) <= limit, name
    for text in (letter.task, letter.queue, letter.reason, letter.headers, letter.body):
        text.encode("utf-8")
        assert "\x00" not in text
    assert "\\u0000" not in letter.headers, "jsonb takes no NUL"
    assert isinstance(json.loads(letter.headers, parse_constant=pytest.fail), dict)
    assert letter.attempt is None or 1 <= letter.attempt < 2**31
    assert letter.reason
    assert len(letter.body.encode()) <= BODY_BYTES
    assert (letter.digest == "") is (letter.run_id is not None and letter.attempt is not None)


@pytest.mark.parametrize("name", HOSTILE)
def test_any_headers_make_a_letter_that_can_be_stored(name: str) -> None:
    assert_can_be_stored(read_death(HOSTILE[name], b"body", "dead"))


@pytest.mark.parametrize("name", BODIES)
def test_any_body_makes_a_letter_that_can_be_stored(name: str) -> None:
    assert_can_be_stored(read_death({}, BODIES[name], "dead"))
    assert_can_be_stored(read_death(OURS, BODIES[name], "dead"))


def test_a_message_of_ours_names_its_run_and_the_attempt_that_died() -> None:
    letter = read_death(OURS, BODY.encode(), "default")
    assert (letter.run_id, letter.attempt, letter.task, letter.queue) == (RUN, 3, "tests.report", "default")
    assert letter.digest == "", "the run and the attempt tell it from others"


def test_queue_and_reason_are_those_of_the_first_death() -> None:
    deaths = [{"queue": "second", "reason": "expired"}, {"queue": "first", "reason": "rejected"}]
    letter = read_death({"x-death": deaths}, b"", "dead")
    assert (letter.queue, letter.reason) == ("first", "rejected")
    named = {"x-death": deaths, "x-first-death-queue": "work", "x-first-death-reason": "delivery_limit"}
    letter = read_death(named, b"", "dead")
    assert (letter.queue, letter.reason) == ("work", "delivery_limit")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (({"a": 1}, b"x"), ({"a": 1}, b"x"), True),
        (({"a": 1, "b": 2}, b"x"), ({"b": 2, "a": 1}, b"x"), True),
        (({"a": 1}, b"x"), ({"a": 2}, b"x"), False),
        (({"a": 1}, b"x"), ({"a": 1}, b"y"), False),
    ],
    ids=["the same message again", "its headers in another order", "other headers", "another body"],
)
def test_a_message_without_a_run_is_known_by_its_digest(one: Any, other: Any, same: bool) -> None:
    assert (read_death(*one).digest == read_death(*other).digest) is same


@pytest.mark.parametrize("name", ["password", "Authorization", "X-API-TOKEN", "db_secret", "aws_credentials"])
def test_what_stands_under_a_secret_name_is_not_kept(name: str) -> None:
    letter = read_death({name: "hunter2", "inner": {name: ["hunter2"]}}, b"")
    assert "hunter2" not in letter.headers
    assert letter.headers.count("[redacted]") == 2
