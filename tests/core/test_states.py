"""The table of legal moves, over every pair of states, and the statements that make them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import pytest

from scheduler_app.core.states import ACTIVE, FINAL, MOVES, Status, may_move
from scheduler_app.models.run import Status as Shown
from scheduler_app.store.statements import HERE, Statement, load

LEGAL = {
    ("queued", "running"): "claimed",
    ("queued", "cancelled"): "cancelled, or replaced by a later slot",
    ("queued", "skipped"): "past its deadline at the claim",
    ("queued", "dead"): "can never be run",
    ("running", "succeeded"): "returned",
    ("running", "queued"): "another attempt follows",
    ("running", "dead"): "no attempt is left, or it gave up",
    ("running", "cancelled"): "stopped on request",
    ("dead", "queued"): "redriven",
    ("cancelled", "queued"): "redriven",
    ("skipped", "queued"): "backfilled",
}
"""What moves a run, written down a second time, so that a change of the table is a decision."""

MOVERS: dict[str, tuple[str, set[tuple[str, str]]]] = {
    "claim_runs": (
        "WHERE r.status = 'queued' AND r.attempts = w.attempt",
        {("queued", "running"), ("queued", "skipped")},
    ),
    "finish_attempts": (
        "r.attempts = f.attempt AND r.locked_by = f.worker AND r.status = 'running'",
        {("running", "succeeded"), ("running", "queued"), ("running", "dead"), ("running", "cancelled")},
    ),
    "cancel_runs": ("WHERE f.id = r.id AND f.status = 'queued'", {("queued", "cancelled")}),
    "cancel_replaced": ("AND status = 'queued'", {("queued", "cancelled")}),
    "refuse_runs": ("WHERE r.id = v.id AND r.status = 'queued'", {("queued", "dead")}),
    "defer_unknown": ("WHERE r.status = 'queued' AND r.attempts = w.attempt", {("queued", "dead")}),
    "redrive_runs": ("WHERE r.status IN ('dead', 'cancelled')", {("dead", "queued"), ("cancelled", "queued")}),
}
"""Every statement that writes a status: the guard it must name, and the moves it makes."""

UPDATE = re.compile(r"UPDATE scheduler_app_jobrun\b[^;]*?\bSET\b(.*?)(?=\bFROM\b|\bWHERE\b)", re.DOTALL)
ASSIGNED = re.compile(r"(?:^|,)\s*status = (.*?)(?=,\s*\w+ = |$)", re.DOTALL)


def statements() -> Iterator[Statement]:
    for file in sorted(HERE.glob("*.sql")):
        yield from load(file.name).values()


def written(statement: Statement) -> str:
    """What the statement writes into `status`; empty if it leaves it alone."""
    found = [ASSIGNED.search(part) for part in UPDATE.findall(statement.sql)]
    return " ".join(match[1] for match in found if match)


@pytest.mark.parametrize(("old", "new"), list(product(Status, repeat=2)))
def test_a_pair_of_states_is_a_legal_move_if_and_only_if_it_is_written_down(old: Status, new: Status) -> None:
    assert may_move(old, new) is ((old.value, new.value) in LEGAL)


def test_every_state_is_in_the_table_and_is_either_active_or_final() -> None:
    assert set(MOVES) == set(Status) == ACTIVE | FINAL
    assert not ACTIVE & FINAL
    assert {state for state, moves in MOVES.items() if not moves} == {Status.SUCCEEDED}, "only success is for ever"


def test_a_final_state_is_left_by_way_of_the_queue_only() -> None:
    assert {new for state in FINAL for new in MOVES[state]} == {Status.QUEUED}


def test_every_state_can_be_reached_from_queued() -> None:
    reached, todo = {Status.QUEUED}, [Status.QUEUED]
    while todo:
        fresh = MOVES[todo.pop()] - reached
        reached |= fresh
        todo += fresh
    assert reached == set(Status)


def test_the_models_states_are_these() -> None:
    assert Shown.values == [state.value for state in Status]


def test_the_statements_that_write_a_status_are_known_here() -> None:
    assert {each.name for each in statements() if written(each)} == set(MOVERS)


@pytest.mark.parametrize("name", sorted(MOVERS))
def test_a_statement_names_the_state_it_expects_and_makes_legal_moves_only(name: str) -> None:
    guard, moves = MOVERS[name]
    (statement,) = (each for each in statements() if each.name == name)
    assert guard in statement.sql
    assert all(may_move(Status(old), Status(new)) for old, new in moves)
    # Without the conditions of CASE, what is quoted is what is written.
    said = set(re.findall(r"'(\w+)'", re.sub(r"WHEN .*? THEN", "", written(statement), flags=re.DOTALL)))
    assert said <= {new for _, new in moves}
    assert said, "it writes a literal state"


def test_every_state_that_a_statement_names_exists() -> None:
    named = re.compile(r"status (?:=|<>|IN) \(?('[a-z_', ]+')")
    found = {word for each in statements() for part in named.findall(each.sql) for word in re.findall(r"\w+", part)}
    assert found == {state.value for state in Status}


def test_the_statements_lists_of_active_and_final_states_are_the_cores() -> None:
    lists = [
        (negated, frozenset(re.findall(r"\w+", inside)))
        for each in statements()
        for negated, inside in re.findall(r"(NOT )?(?:\w+\.)?status IN \(('[^)]*')\)", each.sql)
    ]
    final = {state.value for state in FINAL}
    assert {words for negated, words in lists if negated} == {frozenset(final)}
    sent_back = {old for old, new in MOVERS["redrive_runs"][1]}
    assert {words for negated, words in lists if not negated} == {
        frozenset(state.value for state in ACTIVE),
        frozenset(sent_back),
    }
