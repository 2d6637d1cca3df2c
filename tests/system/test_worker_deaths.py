"""Real workers that are killed, frozen or cut off in the middle of a job: every run ends, once, and says why."""

from __future__ import annotations

import os
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from scheduler_app.models import Attempt, DeadLetter, JobRun, Worker
from scheduler_app.store.term import database_time
from tests.support.programs import Programs, WorkerProcess, wait_until
from tests.support.workload import echo, exiting, gated, holding_the_interpreter, lines, noted, noted_pid

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

on_postgres = pytest.mark.parametrize("broker", ["postgres"], indirect=True)  # where the broker plays no part
SHORT_LEASE = 3.0
SHORT = {"EVERYSLOT_LEASE": str(SHORT_LEASE), "EVERYSLOT_HEARTBEAT": "1"}
POOLED = {"EVERYSLOT_SESSION_LOCKS": "false"}  # as behind a transaction pooler: no session tells of a death


def starts(notes: Path, attempt: int) -> int:
    """Wait until this attempt has started; the process that works on it."""
    wait_until(lambda: noted_pid(notes, "start", attempt), what=f"attempt {attempt}")
    return noted_pid(notes, "start", attempt) or 0


def outcomes(run_id: Any) -> list[tuple[int, str]]:
    """(number, outcome) of every attempt on record."""
    return list(Attempt.objects.filter(run_id=run_id).order_by("number").values_list("number", "outcome"))


def kill(worker: WorkerProcess) -> datetime:
    """SIGKILL a worker whose pool can end nothing any more; when."""
    for child in worker.children:
        child.suspend()
    at = database_time()
    worker.kill(signal.SIGKILL)
    return at


@pytest.mark.parametrize(
    ("within", "environment"),
    [pytest.param(3.0, {}, id="session"), pytest.param(SHORT_LEASE + 2, SHORT | POOLED, id="lease")],
)
def test_a_killed_workers_run_is_taken_up_in_time(
    run: Programs, notes: Path, tmp_path: Path, within: float, environment: dict[str, str]
) -> None:
    gate = tmp_path / "gate"
    beat = run.beat(**environment)
    workers = [run.worker(name, **environment) for name in ("one", "two")]
    beat.leads()
    for each in workers:
        each.ready()
    result = gated.delay(str(notes), str(gate))
    at = kill(run.worker_of(starts(notes, 1)))
    starts(notes, 2)
    assert JobRun.objects.get(pk=result.id).started_at - at < timedelta(seconds=within)
    gate.touch()
    assert result.get(timeout=30) == 2
    assert outcomes(result.id) == [(1, "lost"), (2, "returned")]


def test_a_frozen_workers_late_finish_is_void_and_it_works_on_under_a_new_name(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    beat = run.beat(**SHORT)
    workers = [run.worker(name, EVERYSLOT_PREFETCH="1", **SHORT) for name in ("one", "two")]
    beat.leads()
    for each in workers:
        each.ready()
    result = gated.delay(str(notes), str(tmp_path / "gate-{attempt}"))
    frozen = run.worker_of(starts(notes, 1))
    stopped = frozen.freeze()
    starts(notes, 2)
    old = JobRun.objects.get(pk=result.id)
    for each in stopped:
        each.resume()
    (tmp_path / "gate-1").touch()
    wait_until(lambda: noted_pid(notes, "end", 1), what="the late end")
    later = noted.delay(str(notes), "later")  # for the thawed one: the other is busy and takes no second message
    assert later.get(timeout=30) == "later"
    assert JobRun.objects.get(pk=result.id).status == "running"
    assert JobRun.objects.get(pk=result.id).locked_by == old.locked_by
    (tmp_path / "gate-2").touch()
    assert result.get(timeout=30) == 2
    assert outcomes(result.id) == [(1, "lost"), (2, "returned")]
    first_name = Worker.objects.get(pk=Attempt.objects.get(run_id=result.id, number=1).worker)
    second_name = Worker.objects.get(pk=JobRun.objects.get(pk=later.id).locked_by)
    assert (first_name.pid, first_name.end_reason) == (frozen.pid, "lease_expired")
    assert (second_name.pid, second_name.stopped_at) == (frozen.pid, None)
    assert first_name.id != second_name.id


def test_a_killed_pool_child_ends_its_attempt_within_two_seconds_and_the_worker_lives(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    beat, worker = run.beat(), run.worker()
    beat.leads()
    worker.ready()
    result = gated.delay(str(notes), str(gate))
    child = starts(notes, 1)
    at = database_time()
    os.kill(child, signal.SIGKILL)
    assert starts(notes, 2) != child
    gate.touch()
    assert result.get(timeout=30) == 2
    assert outcomes(result.id) == [(1, "lost"), (2, "returned")]
    assert Attempt.objects.get(run_id=result.id, number=1).finished_at - at < timedelta(seconds=2)
    assert worker.alive
    assert psutil.Process(noted_pid(notes, "end", 2)).ppid() == worker.pid


def test_a_task_that_ends_its_process_dies_as_lost_and_its_neighbours_end_well(run: Programs, notes: Path) -> None:
    beat = run.beat()
    bad = exiting.delay()
    neighbours = [noted.delay(str(notes), text) for text in ("one", "two", "three")]
    worker = run.worker().ready()
    beat.leads()
    assert [each.get(timeout=30) for each in neighbours] == ["one", "two", "three"]
    wait_until(lambda: JobRun.objects.get(pk=bad.id).status == "dead", what="the last attempt")
    assert JobRun.objects.get(pk=bad.id).reason == "lost"
    assert outcomes(bad.id) == [(1, "lost"), (2, "lost"), (3, "lost")]
    attempts = Attempt.objects.filter(run_id=bad.id)
    assert max(each.finished_at - each.started_at for each in attempts) < timedelta(seconds=2)
    assert DeadLetter.objects.get(run_id=bad.id).reason == "lost"
    assert lines(notes) == ["one 1", "two 1", "three 1"]
    assert worker.alive


@on_postgres
def test_a_task_that_holds_the_interpreter_for_three_leases_keeps_its_lease(run: Programs) -> None:
    lease = {"EVERYSLOT_LEASE": "2", "EVERYSLOT_HEARTBEAT": "0.5"}
    beat, worker = run.beat(**lease), run.worker(**lease)
    beat.leads()
    worker.ready()
    result = holding_the_interpreter.delay(6)
    assert result.get(timeout=30) == 1
    row = JobRun.objects.get(pk=result.id)
    assert (row.status, row.attempts) == ("succeeded", 1)
    assert row.finished_at - row.started_at >= timedelta(seconds=6)
    assert not Attempt.objects.filter(run_id=result.id).exists()


@on_postgres
def test_a_task_over_its_time_limit_is_killed_tried_again_and_dies_as_timed_out(run: Programs, notes: Path) -> None:
    beat, worker = run.beat(), run.worker()
    beat.leads()
    worker.ready()
    result = gated.apply_async((str(notes), "never"), time_limit=1, max_attempts=2)
    wait_until(lambda: JobRun.objects.get(pk=result.id).status == "dead", what="the last attempt")
    row = JobRun.objects.get(pk=result.id)
    assert (row.reason, row.attempts) == ("timed_out", 2)
    assert outcomes(result.id) == [(1, "timed_out"), (2, "timed_out")]
    children = [noted_pid(notes, "start", number) for number in (1, 2)]
    assert all(children)
    wait_until(lambda: not any(map(psutil.pid_exists, children)), what="their processes to be gone")
    assert echo.delay("alive").get(timeout=10) == "alive"
    assert worker.alive
