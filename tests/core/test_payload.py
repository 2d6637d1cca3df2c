"""Arguments are refused where they are entered, results never are: anything at all, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.core.limits import PAYLOAD_BYTES, RESULT_BYTES
from scheduler_app.core.payload import decode, encode, encode_arguments, encode_result


class Plain:
    pass


class Raising:
    def __json__(self) -> object:
        raise RuntimeError("not today")


class Lying:
    def __json__(self) -> object:
        return {"text": "a\x00b"}


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def nested(depth: int, leaf: object) -> object:
    value = leaf
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> object:
    value: list[object] = []
    value.append(value)
    return value


def cyclic_object() -> object:
    value: dict[str, object] = {}
    value["self"] = {"inner": value}
    return value


UNFIT: dict[str, Callable[[], object]] = {
    "a NUL": lambda: "a\x00b",
    "a NUL in a key": lambda: {"a\x00": 1},
    "a lone surrogate": lambda: ["\ud800"],
    "a lone surrogate in a key": lambda: {"\udfff": 1},
    "surrogates the wrong way round": lambda: "\ude00\ud83d",
    "NaN": lambda: float("nan"),
    "an infinity": lambda: [float("-inf")],
    "an object": Plain,
    "an object deep inside": lambda: {"a": [{"b": Plain()}]},
    "an object whose JSON raises": Raising,
    "an object whose JSON holds a NUL": Lying,
    "an object that cannot even be shown": Unshowable,
    "a key that is a tuple": lambda: {(1, 2): 3},
    "a key that is bytes": lambda: {b"a": 1},
    "a list inside itself": cyclic,
    "an object inside itself": cyclic_object,
    "too deep": lambda: nested(100_000, 1),
    "deep with a NUL at the bottom": lambda: nested(600, "\x00"),
    "deep with an escaped backslash": lambda: nested(960, "\\u0000"),
    "too many digits": lambda: 10**5000,
    "too large": lambda: "x" * PAYLOAD_BYTES,
    "too large when escaped": lambda: "\x01" * (PAYLOAD_BYTES // 6 + 1),
    "a mark of a type that nobody knows": lambda: {"__type__": "nobody", "__value__": 1},
    "a mark of an instant that is none": lambda: [{"when": {"__type__": "datetime", "__value__": "soon"}}],
    "a mark of a number that is none": lambda: {"__type__": "decimal", "__value__": "many"},
    "a generator": lambda: (number for number in range(3)),
    "a function": lambda: print,
}
"""What has no JSON text that PostgreSQL could keep."""

FIT = {
    "nothing": None,
    "the usual": {"a": [1, 2.5, True, None, "text"]},
    "an emoji": "\N{GRINNING FACE} and \u00e4",
    "a written NUL, a backslash and five letters": "\\u0000",
    "a large number": 10**400,
    "deep": nested(200, 1),
    "a __type__ that is no mark": {"__type__": "nobody", "other": 1},
    "a text about marks": '{"__type__": "nobody", "__value__": 1}',
    "control characters": "\x01\x1b\x7f\r\n",
    "a text that is nearly too large": "x" * (PAYLOAD_BYTES - 2),
}

KOMBUS = [
    datetime(2026, 12, 1, 9, tzinfo=UTC),
    date(2026, 12, 1),
    time(9, 30),
    Decimal("1.50"),
    UUID(int=7),
    b"bytes",
    b"\xff\x00",
]


@pytest.mark.parametrize("name", UNFIT)
def test_arguments_that_cannot_be_kept_are_refused_by_their_field(name: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        encode_arguments("payload", UNFIT[name]())
    assert refused.value.field == "payload"
    assert refused.value.reason


@pytest.mark.parametrize("name", UNFIT)
def test_a_result_that_cannot_be_kept_is_a_note_in_its_place(name: str) -> None:
    said = json.loads(encode_result(UNFIT[name]()))
    assert said["everyslot"] == "result not stored"
    assert said["reason"]
    assert len(said["repr"].encode()) <= 2000


@pytest.mark.parametrize("name", FIT)
def test_what_can_be_kept_comes_back_as_it_was(name: str) -> None:
    assert decode(encode_arguments("args", FIT[name])) == FIT[name]
    assert decode(encode_result(FIT[name])) == FIT[name]


@pytest.mark.parametrize("value", KOMBUS, ids=lambda value: type(value).__name__)
def test_what_celery_users_pass_comes_back_with_its_type(value: Any) -> None:
    found = decode(encode_arguments("payload", {"value": [value]}))["value"][0]
    assert found == value
    assert type(found) is type(value)


def test_a_tuple_comes_back_as_a_list_and_a_number_as_key_becomes_text_as_in_celery() -> None:
    assert decode(encode({"a": (1, 2), 3: "three", None: 0})) == {"a": [1, 2], "3": "three", "null": 0}


@pytest.mark.parametrize(("more", "kept"), [(0, True), (1, False)])
def test_the_limit_is_exact(more: int, kept: bool) -> None:
    value = "x" * (RESULT_BYTES - 2 + more)
    assert (json.loads(encode_result(value)) == value) is kept


def test_the_refusal_names_size_and_limit() -> None:
    with pytest.raises(InvalidDefinition, match=r"payload: is 300002 bytes as JSON; the limit is 262144"):
        encode_arguments("payload", "x" * 300_000)


def test_a_text_that_looks_unfit_but_is_not_is_kept() -> None:
    value = {"emoji": "\N{GRINNING FACE}", "escape": "\\ud800 \\u0000"}
    assert decode(encode_arguments("payload", value)) == value
