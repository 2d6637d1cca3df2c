"""Concurrency policies: who waits for whom, who is cancelled, who is skipped."""

from __future__ import annotations

from itertools import count
from uuid import UUID

import pytest

from scheduler_app.core.overlap import ActiveRun, arrange

A, B = UUID(int=1001), UUID(int=1002)
QUEUED, RUNNING = ActiveRun(A, running=False), ActiveRun(B, running=True)


def place(policy: str, slots: list[int], *active: ActiveRun):  # type: ignore[no-untyped-def]
    numbers = count(1)
    return arrange(policy, slots, active, lambda: UUID(int=next(numbers)))


def holders(arranged) -> list[int | None]:  # type: ignore[no-untyped-def]
    return [None if each.held_by is None else each.held_by.int for each in arranged.placed]


@pytest.mark.parametrize(
    ("policy", "active", "ran", "skipped"),
    [
        ("allow", [RUNNING], [3, 5, 7], []),
        ("forbid", [], [3], [5, 7]),
        ("forbid", [RUNNING], [], [3, 5, 7]),
        ("forbid", [QUEUED], [], [3, 5, 7]),
        ("queue_one", [], [3, 5], [7]),
        ("queue_one", [RUNNING], [3], [5, 7]),
        ("queue_one", [RUNNING, QUEUED], [], [3, 5, 7]),
        ("queue_all", [RUNNING, QUEUED], [3, 5, 7], []),
        ("replace", [], [7], [3, 5]),
        ("replace", [QUEUED, RUNNING], [7], [3, 5]),
    ],
)
def test_a_policy_says_which_slots_run(
    policy: str, active: list[ActiveRun], ran: list[int], skipped: list[int]
) -> None:
    arranged = place(policy, [3, 5, 7], *active)
    assert [each.slot for each in arranged.placed] == ran
    assert list(arranged.skipped) == skipped


def test_queued_runs_wait_each_for_the_one_before() -> None:
    assert holders(place("queue_all", [3, 5, 7], RUNNING)) == [B.int, 1, 2]
    assert holders(place("queue_all", [3, 5])) == [None, 1]


def test_replace_cancels_what_has_not_started_and_waits_for_what_runs() -> None:
    arranged = place("replace", [3], QUEUED, RUNNING)
    assert (arranged.cancel, arranged.stop) == ((A,), (B,))
    assert holders(arranged) == [B.int]


def test_replace_of_an_unstarted_run_waits_for_nothing() -> None:
    arranged = place("replace", [3], QUEUED)
    assert (arranged.cancel, arranged.stop, holders(arranged)) == ((A,), (), [None])


def test_without_slots_nothing_is_cancelled() -> None:
    arranged = place("replace", [], QUEUED, RUNNING)
    assert (arranged.placed, arranged.cancel, arranged.stop) == ((), (), ())
