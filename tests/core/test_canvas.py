"""What follows a run, for each shape that Celery's canvas can take; chords are refused wherever they hide."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, chain, chord, group
from hypothesis import given
from hypothesis import strategies as st

from scheduler_app.core.canvas import CHORD_REFUSED, Successor, after_death, after_success, canvas_of, refuse

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


def test_the_links_of_a_chain_follow_its_last_task_and_its_error_links_each() -> None:
    signature = chain(app.signature("a"), group([app.signature("b"), app.signature("c", link=app.signature("y"))]))
    signature.link(app.signature("l"))
    signature.link_error(app.signature("e"))
    (a,) = after_success({"link": [dict(signature)]}, "r")
    members = after_success(a.canvas or {}, "r")
    assert names(after_death(a.canvas or {}, "run")) == ["e"]
    assert names(members) == ["b", "c"]
    assert [names(after_success(each.canvas or {}, "r")) for each in members] == [["l"], ["y", "l"]]
    assert [names(after_death(each.canvas or {}, "run")) for each in members] == [["e"], ["e"]]


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
            dict(chain(app.signature("a"), app.signature("b")))
            | {"kwargs": {"tasks": [call("a") | {"subtask_type": "chord"}]}}, True,
            id="a chord in a chain",
        ),
    ],
)  # fmt: skip
def test_chords_are_refused_and_nothing_else(signature: dict[str, Any], refused: bool) -> None:
    assert refuse([call("first"), signature]) == (CHORD_REFUSED if refused else None)


SHAPES: dict[str, Any] = {
    "text": "tests.report",
    "number": 5,
    "empty": {},
    "no name": {"args": []},
    "name of no text": {"task": 5},
    "args of no list": {"task": "b", "args": {"a": 1}},
    "args text": {"task": "b", "args": "abc"},
    "kwargs list": {"task": "b", "kwargs": [1]},
    "options list": {"task": "b", "options": ["queue"]},
    "chain without tasks": {"task": "celery.chain", "subtask_type": "chain"},
    "chain of none": {"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": []}},
    "chain of no list": {"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": {"task": "b"}}},
    "chain of text": {"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": ["b"]}},
    "group without kwargs": {"task": "celery.group", "subtask_type": "group", "kwargs": None},
    "group of numbers": {"task": "celery.group", "subtask_type": "group", "kwargs": {"tasks": [1]}},
}


@pytest.mark.parametrize("place", ["itself", "link", "link_error", "chain", "one link", "group", "chain's link"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_what_is_no_signature_is_refused_wherever_it_hides(shape: Any, place: str) -> None:
    within: dict[str, Any] = {
        "itself": shape,
        "link": call("a", link=[shape]),
        "link_error": call("a", link_error=[call("b"), shape]),
        "chain": call("a", chain=[shape, call("b")]),
        "one link": call("a", link=shape),
        "group": dict(group([app.signature("a")])) | {"kwargs": {"tasks": [call("a"), shape]}},
        "chain's link": dict(chain(app.signature("a"), app.signature("b")))
        | {"kwargs": {"tasks": [call("a", link=[shape])]}},
    }
    why = refuse([call("first"), within[place]])
    assert why
    assert why != CHORD_REFUSED


ODD = st.one_of(st.none(), st.text(max_size=3), st.integers(), st.lists(st.integers(), max_size=2))


def _mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(good, good, good, good, ODD)


def _signatures(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = _mostly(st.lists(inner, max_size=3))
    option = st.dictionaries(st.sampled_from(["chain", "link", "link_error", "queue"]), st.one_of(several, inner))
    tasks = st.fixed_dictionaries({}, optional={"tasks": several})
    optional = {
        "args": _mostly(st.lists(st.integers(), max_size=2)),
        "kwargs": _mostly(tasks),
        "options": _mostly(option),
        "subtask_type": st.sampled_from([None, "chain", "group", "chord", "map"]),
        "immutable": st.booleans(),
    }
    return st.fixed_dictionaries({"task": _mostly(st.just("a"))}, optional=optional)


@given(st.lists(_mostly(st.recursive(_mostly(st.just(call("a"))), _signatures, max_leaves=8)), max_size=3))
def test_what_is_let_through_can_be_read_to_its_end(signatures: list[Any]) -> None:
    if refuse(signatures) is None:
        canvas = canvas_of(signatures, signatures, signatures) or {}
        waiting = [canvas]
        while waiting:
            after = waiting.pop()
            waiting += [each.canvas for each in [*after_success(after, 1), *after_death(after, "run")] if each.canvas]
