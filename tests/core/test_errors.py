"""Errors: a code of its own each, and a way through a pool child's pipe."""

from __future__ import annotations

import inspect
import pickle

import pytest

from scheduler_app.core import errors
from scheduler_app.core.errors import EveryslotError, InvalidDefinition, InvalidSchedule, RetryLater

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, EveryslotError)]
CODES = {
    "EveryslotError": "everyslot_error",
    "InvalidSchedule": "invalid_schedule",
    "InvalidDefinition": "invalid_definition",
    "LostGround": "lost_ground",
    "RetryLater": "retry_later",
    "GiveUp": "give_up",
    "Cancelled": "cancelled",
}


def test_the_codes_are_those_that_callers_rely_on() -> None:
    assert {kind.__name__: kind.code for kind in CLASSES} == CODES


@pytest.mark.parametrize(
    "error",
    [InvalidSchedule("minute", "is 60"), InvalidDefinition("task", "unknown"), RetryLater(5, "busy"),
     errors.GiveUp("no"), errors.Cancelled(), errors.LostGround("gone")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_an_error_survives_its_way_out_of_a_pool_child(error: EveryslotError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
