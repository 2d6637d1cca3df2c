"""Cancelling runs."""

from __future__ import annotations

import pytest

from scheduler_app.lifecycle.cancel import cancel
from scheduler_app.models import JobRun
from tests.support.definitions import a_run

pytestmark = pytest.mark.django_db


def test_a_queued_run_ends_at_once() -> None:
    run = a_run()
    assert cancel([run.id], "ann").ended == [run.id]
    run.refresh_from_db()
    assert (run.status, run.reason) == ("cancelled", "requested")
    assert run.finished_at is not None


def test_a_run_that_waits_for_its_retry_ends_too() -> None:
    run = a_run(attempts=2)
    assert cancel([run.id], "ann").ended == [run.id]


def test_a_running_run_is_asked_to_stop_once() -> None:
    run = a_run(status="running")
    assert cancel([run.id], "ann").asked == [run.id]
    run.refresh_from_db()
    asked_at = run.cancel_requested_at
    assert (run.status, asked_at is not None) == ("running", True)
    assert cancel([run.id], "ann").asked == []
    run.refresh_from_db()
    assert run.cancel_requested_at == asked_at


@pytest.mark.parametrize("status", ["succeeded", "dead", "cancelled", "skipped"])
def test_a_run_that_ended_keeps_its_end(status: str) -> None:
    run = a_run(status=status)
    done = cancel([run.id], "ann")
    run.refresh_from_db()
    assert (done.ended, done.asked, run.status) == ([], [], status)


def test_what_waited_for_a_cancelled_run_becomes_free() -> None:
    first = a_run()
    second = a_run(held_by=first.id)
    assert cancel([first.id], "ann").passed == 1
    assert _holder(second) is None


def test_what_waited_for_a_waiting_run_waits_for_its_predecessor() -> None:
    first = a_run(status="running")
    second = a_run(held_by=first.id)
    third = a_run(held_by=second.id)
    cancel([second.id], "ann")
    assert _holder(third) == first.id
    assert _holder(second) is None


def test_a_whole_line_cancelled_together_leaves_nobody_waiting_for_the_cancelled() -> None:
    first = a_run(status="running")
    second = a_run(held_by=first.id)
    third = a_run(held_by=second.id)
    fourth = a_run(held_by=third.id)
    assert set(cancel([third.id, second.id], "ann").ended) == {second.id, third.id}
    assert _holder(fourth) == first.id


def test_what_waits_for_a_running_run_goes_on_waiting() -> None:
    first = a_run(status="running")
    second = a_run(held_by=first.id)
    cancel([first.id], "ann")
    assert _holder(second) == first.id


def _holder(run: JobRun) -> object:
    return JobRun.objects.get(pk=run.pk).held_by
