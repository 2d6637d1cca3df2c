"""Which children of the pool are taken for hung: by time that somebody watched, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_app.conf import conf
from scheduler_app.models.ids import new_id
from scheduler_app.worker import hung
from scheduler_app.worker.hung import HungChildren

CHILD = 4711


class Request:
    """One that was written to a child."""

    def __init__(self) -> None:
        self.claim = SimpleNamespace(run_id=new_id(), attempt=1)
        self.begun = False
        self.killed = 0

    def waits_in_child(self) -> bool:
        return not self.begun

    def kill_hung_child(self) -> int | None:
        self.killed += 1
        return CHILD


class Watch:
    """Looks once a heartbeat, on a clock that the test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.loop_turns = True
        monkeypatch.setattr(hung, "time", SimpleNamespace(monotonic=lambda: self.now))
        self._calls: list[Callable[[], None]] = []
        self._children = HungChildren(self._calls.append)

    def look(self, *running: Any, after: float | None = None) -> None:
        self.now += conf().heartbeat if after is None else after
        if self.loop_turns:
            for call in self._calls:
                call()
        self._calls.clear()
        self._children.look(list(running))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def heartbeats_of_a_lease() -> int:
    return int(conf().lease / conf().heartbeat)


def test_a_child_that_does_not_begin_for_a_lease_is_killed(watch: Watch) -> None:
    request = Request()
    for _ in range(heartbeats_of_a_lease() + 1):
        watch.look(request)
        assert request.killed == 0
    watch.look(request)
    assert request.killed == 1


def test_one_that_begins_in_time_is_not(watch: Watch) -> None:
    request = Request()
    for _ in range(heartbeats_of_a_lease()):
        watch.look(request)
    request.begun = True
    for _ in range(10):
        watch.look(request)
    assert request.killed == 0


def test_the_next_attempt_is_counted_anew(watch: Watch) -> None:
    request = Request()
    for _ in range(heartbeats_of_a_lease()):
        watch.look(request)
    request.claim.attempt = 2
    for _ in range(heartbeats_of_a_lease()):
        watch.look(request)
    assert request.killed == 0


def test_time_in_which_the_event_loop_did_not_turn_does_not_count(watch: Watch) -> None:
    """It may have the child's word in its pipe, unread."""
    request = Request()
    watch.loop_turns = False
    for _ in range(10 * heartbeats_of_a_lease()):
        watch.look(request)
    assert request.killed == 0


def test_a_worker_that_was_frozen_takes_nobody_for_hung(watch: Watch) -> None:
    request = Request()
    watch.look(request)
    watch.look(request, after=100 * conf().lease)
    watch.look(request)
    assert request.killed == 0
