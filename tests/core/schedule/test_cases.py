"""Every case of `tests/data/schedule.jsonl`: answers gathered from the tests of other schedulers and recomputed."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from scheduler_app.core.schedule import InvalidSchedule, explain, next_fires, validate

FILE = Path(__file__).parents[2] / "data" / "schedule.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == kind]


@pytest.mark.parametrize("case", of_kind("next"))
def test_next_slots_are_those_of_the_case(case):
    if case.get("may_reject"):
        with pytest.raises(InvalidSchedule, match="never run"):
            validate(case["expr"], case["tz"])
        return
    found = next_fires(case["expr"], case["tz"], datetime.fromisoformat(case["after"]), case["k"])
    assert [f"{slot:%Y-%m-%dT%H:%M:%SZ}" for slot in found] == case["expected"]


@pytest.mark.parametrize("case", of_kind("invalid"))
def test_what_the_case_calls_invalid_is_refused(case):
    with pytest.raises(InvalidSchedule):
        validate(case["expr"], case["tz"])


@pytest.mark.parametrize("case", of_kind("describe"))
def test_what_others_describe_is_explained_or_refused(case):
    # The wording is ours; L with a step is the one form that we refuse.
    if "L/" in case["expr"]:
        with pytest.raises(InvalidSchedule):
            explain(case["expr"])
    else:
        assert explain(case["expr"]).endswith(", UTC.")
