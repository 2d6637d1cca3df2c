"""Text that PostgreSQL can store, made of anything: nothing raises, nothing grows past its limit."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_app.core.text import describe, looks_unstorable, note, storable, unstorable_string

HOSTILE = {
    "empty": "",
    "plain": "plain",
    "a NUL": "a\x00b",
    "only NULs": "\x00" * 10,
    "a lone high surrogate": "a\ud800b",
    "a lone low surrogate": "\udfff",
    "surrogates the wrong way round": "\ude00\ud83d",
    "an emoji": "\N{GRINNING FACE}",
    "control characters": "\x01\x1b[31m\x7f\r\n",
    "a byte order mark": "\ufeffa",
    "the replacement itself": "\ufffd",
    "right to left": "\u202eabc",
    "huge": "x" * 300_000,
    "huge, of four bytes each": "\N{GRINNING FACE}" * 100_000,
    "huge, all NUL": "\x00" * 100_000,
    "written NUL, a backslash and five letters": "\\u0000",
}


class Awkward(Exception):
    """An error whose message cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Huge:
    def __repr__(self) -> str:
        return "\x00\ud800" * 100_000


def can_be_stored(text: str) -> bool:
    text.encode("utf-8")  # raises for a lone surrogate
    return "\x00" not in text


@pytest.mark.parametrize("limit", [0, 1, 10, 30, 100, 255, 16 * 1024])
@pytest.mark.parametrize("name", HOSTILE)
def test_any_text_becomes_storable_and_keeps_to_its_limit(name: str, limit: int) -> None:
    kept = storable(HOSTILE[name], limit)
    assert can_be_stored(kept)
    assert len(kept.encode()) <= limit


@pytest.mark.parametrize("name", ["empty", "plain", "an emoji", "control characters", "right to left"])
def test_text_that_can_be_stored_is_kept_as_it_is(name: str) -> None:
    assert storable(HOSTILE[name]) == HOSTILE[name]


@pytest.mark.parametrize(
    ("given", "kept"), [("a\x00b", "a\ufffdb"), ("a\ud800b", "a?b"), ("\udfff", "?"), ("\\u0000", "\\u0000")]
)
def test_what_cannot_be_stored_is_replaced_one_by_one(given: str, kept: str) -> None:
    assert storable(given) == kept


def test_a_cut_is_said_with_the_whole_size_and_never_splits_a_character() -> None:
    kept = storable("ü" * 1000, 101)
    assert kept.endswith("… cut: 2000 bytes in all")
    assert set(kept.partition("\n")[0]) == {"ü"}


def test_a_text_of_exactly_the_limit_is_not_cut() -> None:
    assert storable("x" * 100, 100) == "x" * 100
    assert "cut: 101 bytes" in storable("x" * 101, 100)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param("a\x00", "NUL", id="a text"),
        pytest.param({"a\x00": 1}, "NUL", id="a key"),
        pytest.param({"a": {"b": ["c", ("d\x00",)]}}, "NUL", id="deep inside"),
        pytest.param(["\ud800"], "surrogate", id="a lone surrogate"),
        pytest.param({"\udfff": None}, "surrogate", id="a lone surrogate as key"),
        pytest.param({"a": ["b", "\N{GRINNING FACE}", 1, None, True, 1.5]}, None, id="all is well"),
        pytest.param("\\u0000", None, id="a backslash is not a NUL"),
        pytest.param(7, None, id="a number"),
    ],
)
def test_a_value_is_looked_through_for_what_cannot_be_stored(value: Any, why: str | None) -> None:
    found = unstorable_string(value)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("encoded", "suspect"),
    [
        (r'"\u0000"', True),
        (r'"\ud800"', True),
        (r'"\uDFFF"', True),
        (r'"\\u0000"', True),  # looked through, and found well
        (r'"\u00e4"', False),
        ('"plain"', False),
        (r'"\u000a"', False),
    ],
)
def test_the_quick_look_never_misses_what_cannot_be_stored(encoded: str, suspect: bool) -> None:
    assert looks_unstorable(encoded) is suspect


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (SystemExit(3), "SystemExit: 3"),
        (ValueError("a\x00b"), "ValueError: a\ufffdb"),
    ],
)
def test_an_error_is_described_as_a_traceback_ends(error: BaseException, said: str) -> None:
    assert describe(error) == said


def test_an_error_of_a_module_is_named_with_it_and_one_that_cannot_be_shown_is_said_to_be_so() -> None:
    assert describe(Awkward()) == f"{__name__}.Awkward: <its message cannot be shown: RuntimeError>"


def test_an_error_with_a_huge_message_is_cut() -> None:
    assert len(describe(ValueError("x" * 1_000_000)).encode()) <= 16 * 1024


@pytest.mark.parametrize("value", [None, Unshowable(), Huge(), *HOSTILE.values()])
def test_a_note_can_be_stored_whatever_it_stands_for(value: object) -> None:
    said = note("is 3 bytes\x00too large\ud800" * 500, value)
    assert all(can_be_stored(part) for part in said.values())
    assert len(said["reason"].encode()) <= 500
    assert len(said["repr"].encode()) <= 2000
    assert said["everyslot"] == "result not stored"


def test_a_note_says_when_a_value_cannot_be_shown() -> None:
    assert note("why", Unshowable())["repr"] == "<its repr raised RuntimeError>"
