"""Cancelling with real workers: a task stops when it looks, is killed when it does not, and only then is cancelled."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from scheduler_app.core.errors import Cancelled
from scheduler_app.lifecycle.cancel import cancel
from scheduler_app.lifecycle.redrive import redrive
from scheduler_app.models import Attempt, DeadLetter, JobRun
from tests.support.definitions import a_run
from tests.support.programs import Programs, wait_until
from tests.support.workload import booking, echo, gated, lines, looking, noted_pid

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

on_postgres = pytest.mark.parametrize("broker", ["postgres"], indirect=True)
QUICK = {"EVERYSLOT_HEARTBEAT": "0.2", "EVERYSLOT_CANCEL_GRACE": "0.5"}
PATIENT = {"EVERYSLOT_CANCEL_GRACE": "86400"}
KILLED = "killed: it went on for 0.5 s after it was asked to stop"


def starts(notes: Path) -> int:
    """Wait for the first attempt; the process that works on it."""
    wait_until(lambda: noted_pid(notes, "start", 1), what="attempt 1")
    return noted_pid(notes, "start", 1) or 0


def works(pid: int) -> bool:
    """Whether a process is there and can do anything."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def status(run_id: Any) -> str:
    return JobRun.objects.get(pk=run_id).status


def is_cancelled(run_id: Any, child: int) -> bool:
    """Looks at the state first: once it says so, the process must be gone."""
    said = status(run_id) == "cancelled"
    assert not (said and works(child)), "it is said to be cancelled, and still works"
    return said


def attempts(run_id: Any) -> list[tuple[int, str, str]]:
    return list(Attempt.objects.filter(run_id=run_id).values_list("number", "outcome", "error"))


@pytest.mark.parametrize("safe_point", ["check", "progress", "step"])
@on_postgres
def test_a_task_stops_at_its_next_safe_point(run: Programs, notes: Path, safe_point: str) -> None:
    run.beat().leads()
    worker = run.worker(**PATIENT).ready()
    result = looking.delay(str(notes), safe_point)
    starts(notes)
    assert cancel([UUID(result.id)], "ann").asked == [UUID(result.id)]
    wait_until(lambda: status(result.id) == "cancelled", what="the end")
    assert lines(notes)[1:] == ["stopped 1"]
    assert attempts(result.id) == [
        (1, "cancelled", f"{Cancelled.__module__}.Cancelled: run {result.id} was asked to stop")
    ]
    assert worker.lines_of_error == []


def test_a_task_that_does_not_look_is_killed_after_the_grace_and_its_neighbour_goes_on(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    other, gate = tmp_path / "other", tmp_path / "gate"
    run.beat().leads()
    worker = run.worker(concurrency=2, **QUICK).ready()
    neighbour = gated.delay(str(other), str(gate))
    stubborn = gated.delay(str(notes), str(tmp_path / "never"))
    child, beside = starts(notes), starts(other)
    assert cancel([UUID(stubborn.id)], "ann").asked
    wait_until(lambda: is_cancelled(stubborn.id, child), what="the end")
    assert attempts(stubborn.id) == [(1, "cancelled", KILLED)]
    assert JobRun.objects.get(pk=stubborn.id).last_error == KILLED
    assert works(beside)
    gate.touch()
    assert neighbour.get(timeout=30) == 1
    assert echo.delay("on").get(timeout=30) == "on"
    assert works(worker.pid)


@on_postgres
def test_a_worker_in_a_warm_stop_ends_soon_once_its_last_task_is_cancelled(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    run.beat().leads()
    worker = run.worker(**QUICK).ready()
    stubborn = gated.delay(str(notes), str(tmp_path / "never"))
    child = starts(notes)
    worker.kill(signal.SIGTERM)
    worker.says("Warm shutdown")
    assert status(stubborn.id) == "running"
    cancel([UUID(stubborn.id)], "ann")
    wait_until(lambda: is_cancelled(stubborn.id, child), what="the end")
    assert worker.wait(20) == 0, worker.log
    assert attempts(stubborn.id) == [(1, "cancelled", KILLED)]


@on_postgres
def test_what_a_killed_transactional_task_wrote_and_enqueued_is_gone(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    run.beat().leads()
    run.worker(**QUICK).ready()
    stubborn = booking.delay(str(notes), "trip", str(tmp_path / "never"))
    child = starts(notes)
    cancel([UUID(stubborn.id)], "ann")
    wait_until(lambda: is_cancelled(stubborn.id, child), what="the end")
    assert not DeadLetter.objects.filter(reason="trip").exists()
    assert list(JobRun.objects.values_list("pk", flat=True)) == [UUID(stubborn.id)]


@on_postgres
def test_a_killed_run_that_is_redriven_runs_again_in_peace(run: Programs, notes: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run.beat().leads()
    run.worker(**QUICK).ready()
    stubborn = gated.delay(str(notes), str(gate))
    child = starts(notes)
    cancel([UUID(stubborn.id)], "ann")
    wait_until(lambda: is_cancelled(stubborn.id, child), what="the end")
    redrive([UUID(stubborn.id)], "ann")
    wait_until(lambda: noted_pid(notes, "start", 2), what="attempt 2")
    gate.touch()
    assert stubborn.get(timeout=30) == 2


def test_cancelling_what_has_ended_and_killing_all_children_leaves_a_worker_that_works(run: Programs) -> None:
    """Report 132."""
    ended = [a_run(status="succeeded", trigger="code").id for _ in range(1000)]
    run.beat().leads()
    worker = run.worker(concurrency=2, **QUICK).ready()
    done = cancel(ended, "ann")
    assert (done.ended, done.asked) == ([], [])
    children = worker.children
    for child in children:
        child.kill()
    assert [each.get(timeout=30) for each in [echo.delay(number) for number in range(4)]] == [0, 1, 2, 3]
    assert JobRun.objects.filter(status="succeeded").count() == 1004
    assert not set(worker.children) & set(children)
