"""What follows a run, for each shape that Celery's canvas can take; chords are refused wherever they hide."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, chain, chord, group

from scheduler_app.core.canvas import CHORD_REFUSED, Successor, after_death, after_success, canvas_of, refuse_chords

app = Celery("tests", set_as_current=False)


def call(name: str, *args: Any, immutable: bool = False, **options: Any) -> dict[str, Any]:
    return {"task": name, "args": args, "kwargs": {}, "options": options, "immutable": immutable}


def names(successors: list[Successor]) -> list[str]:
    return [each.task for each in successors]


def followed(successors: list[Successor], result: Any = "r") -> list[str]:
    """All tasks in the order in which they would run, one after the other."""
    found: list[str] = []
    for each in successors:
        found.append(each.task)
        found += followed(after_success(each.canvas, result)) if each.canvas else []
    return found


def test_nothing_follows_a_run_without_canvas() -> None:
    assert canvas_of([], [], []) is None
    assert after_success({}, 1) == []
    assert after_death({}, "run") == []


def test_a_canvas_keeps_only_what_there_is() -> None:
    assert canvas_of([call("b")], [], []) == {"chain": [call("b")]}


def test_the_next_of_a_chain_gets_the_result_and_takes_the_rest_along() -> None:
    """Celery keeps a chain with the next one last."""
    canvas = {"chain": [call("d"), call("c"), call("b", 2, x=1)]}
    (after,) = after_success(canvas, {"value": 1})
    assert (after.task, after.args, after.options) == ("b", ({"value": 1}, 2), {"x": 1})
    assert after.canvas == {"chain": [call("d"), call("c")]}
    assert followed([after]) == ["b", "c", "d"]


def test_an_immutable_successor_gets_its_own_arguments_only() -> None:
    (after,) = after_success({"chain": [call("b", 2, immutable=True)]}, "result")
    assert after.args == (2,)


def test_links_follow_beside_the_chain() -> None:
    canvas = {"link": [call("l1"), call("l2")], "chain": [call("b")]}
    assert names(after_success(canvas, None)) == ["l1", "l2", "b"]


def test_a_successor_brings_its_own_links_and_chain() -> None:
    signature = call("b", link=[call("l")], link_error=call("e"), chain=[call("z")], queue="fast")
    (after,) = after_success({"chain": [call("c"), signature]}, 1)
    assert after.options == {"queue": "fast"}
    assert after.canvas == {"chain": [call("c"), call("z")], "link": [call("l")], "link_error": [call("e")]}


def test_error_links_follow_a_death_alone_and_get_the_runs_id_first() -> None:
    canvas = {"link": [call("l")], "chain": [call("b")], "link_error": [call("e", 1), call("f", immutable=True)]}
    assert [(each.task, each.args) for each in after_death(canvas, "run")] == [("e", ("run", 1)), ("f", ())]


def test_making_successors_changes_nothing_in_the_canvas() -> None:
    canvas = {"chain": [call("c"), call("b", link=[call("l")], chain=[call("z")])]}
    before = repr(canvas)
    after_success(canvas, 1)
    after_success(canvas, 1)
    assert repr(canvas) == before


@pytest.mark.parametrize(
    ("canvas", "order"),
    [
        pytest.param({"chain": [call("z"), dict(chain(*map(app.signature, "abcd")))]}, ["a", "b", "c", "d", "z"],
                     id="a chain in a chain"),
        pytest.param({"link": [dict(group(app.signature("a"), app.signature("b")))]}, ["a", "b"], id="a group as link"),
        pytest.param({"chain": [dict(group([app.signature("a"), chain(app.signature("b"), app.signature("c"))]))]},
                     ["a", "b", "c"], id="a chain in a group"),
        pytest.param({"chain": [call("z"), dict(group([app.signature("a"), app.signature("b")]))]},
                     ["a", "z", "b", "z"], id="a group within a chain, each with the rest"),
    ],
)  # fmt: skip
def test_celerys_own_signatures_follow_in_their_order(canvas: dict[str, Any], order: list[str]) -> None:
    assert followed(after_success(canvas, "r")) == order


@pytest.mark.parametrize(
    ("signature", "refused"),
    [
        pytest.param(call("a"), False, id="a task"),
        pytest.param(dict(chain(app.signature("a"), app.signature("b"))), False, id="a chain"),
        pytest.param(dict(group([app.signature("a"), app.signature("b")])), False, id="a group"),
        pytest.param(dict(chord([app.signature("a")], app.signature("b"))), True, id="a chord"),
        pytest.param(dict(group([chord([app.signature("a")], app.signature("b"))])), True, id="a chord in a group"),
        pytest.param({**call("a"), "chord_size": 2}, True, id="a part of a chord"),
        pytest.param(
            {"subtask_type": "chain", "kwargs": {"tasks": [call("a"), {"subtask_type": "chord"}]}}, True,
            id="a chord in a chain",
        ),
    ],
)  # fmt: skip
def test_chords_are_refused_and_nothing_else(signature: dict[str, Any], refused: bool) -> None:
    assert refuse_chords([call("first"), signature]) == (CHORD_REFUSED if refused else None)
