"""What a broker message says of a run, and what is read back from any message at all."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from scheduler_app.core.message import ATTEMPT_HEADER, ATTEMPT_MOST, BODY, Hint, headers, read_attempt

HINT = Hint(UUID(int=7), "tests.report", 3, "default", 4)


def test_a_hint_is_a_celery_message_without_arguments() -> None:
    assert json.loads(BODY) == [[], {}, {}]
    assert headers(HINT) == {
        "id": str(HINT.run_id),
        "root_id": str(HINT.run_id),
        "task": "tests.report",
        "lang": "py",
        "ignore_result": True,
        ATTEMPT_HEADER: 3,
    }


def test_the_attempt_of_a_hint_is_read_back() -> None:
    assert read_attempt(headers(HINT)[ATTEMPT_HEADER]) == 3


@pytest.mark.parametrize("number", [0, 1, ATTEMPT_MOST])
def test_a_number_that_a_run_can_have_is_an_attempt(number: int) -> None:
    assert read_attempt(number) == number


def test_the_attempt_after_the_highest_still_fits_its_column() -> None:
    assert ATTEMPT_MOST + 1 == 2**31 - 1, "PostgreSQL's integer; one number more would poison a whole batch"


@pytest.mark.parametrize(
    "raw",
    [None, "3", "", b"3", 3.0, 2.5, float("nan"), True, False, -1, -(2**70), ATTEMPT_MOST + 1, 2**63, 10**400, [], [3],
     {}, {"attempt": 3}, object()],
    ids=lambda raw: f"{type(raw).__name__} {raw!r:.12}",
)  # fmt: skip
def test_anything_else_is_no_attempt(raw: Any) -> None:
    assert read_attempt(raw) is None
