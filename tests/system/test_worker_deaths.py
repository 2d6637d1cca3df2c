"""Real workers that are killed, frozen or cut off in the middle of a job: every run ends, once, and says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from scheduler_app.local.service import NativeService
from scheduler_app.local.services import Services
from scheduler_app.models import Attempt, DeadLetter, JobRun, Worker
from scheduler_app.store.term import database_time
from scheduler_app.worker.keeper import RETRY_SECONDS
from tests.support.brokers import broker_url
from tests.support.crash_points import SETUP
from tests.support.programs import ROOT, WORKLOAD, Programs, WorkerProcess, promised, wait_until
from tests.support.workload import echo, exiting, gated, holding_the_interpreter, lines, noted, noted_pid

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

# Where the broker plays no part.
on_postgres = pytest.mark.parametrize("broker", ["postgres"], indirect=True)
mostly_on_postgres = pytest.mark.parametrize(
    "broker", ["postgres", pytest.param("rabbitmq", marks=pytest.mark.proof)], indirect=True
)
SHORT_LEASE = 3.0
SHORT = {"EVERYSLOT_LEASE": str(SHORT_LEASE), "EVERYSLOT_HEARTBEAT": "1"}
AWAY = "is not renewed"  # what a keeper says, every RETRY_SECONDS, while the database is away
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


@pytest.mark.timed
def test_a_killed_workers_run_is_taken_up_within_three_seconds(run: Programs, notes: Path, tmp_path: Path) -> None:
    taken_up_within(3.0, run, notes, tmp_path / "gate")


@pytest.mark.timed
@mostly_on_postgres
def test_where_no_session_tells_a_killed_workers_run_is_taken_up_within_its_lease_and_two_seconds(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    taken_up_within(SHORT_LEASE + 2, run, notes, tmp_path / "gate", **SHORT | POOLED)


def taken_up_within(seconds: float, run: Programs, notes: Path, gate: Path, **environment: str) -> None:
    """Kill one of two workers in a job: the other takes it up in time, and the first attempt is on record."""
    beat = run.beat(**environment)
    workers = [run.worker(name, **environment) for name in ("one", "two")]
    beat.leads()
    for each in workers:
        each.ready()
    result = gated.delay(str(notes), str(gate))
    at = kill(run.worker_of(starts(notes, 1)))
    starts(notes, 2)
    assert JobRun.objects.get(pk=result.id).started_at - at < promised(seconds)
    gate.touch()
    assert result.get(timeout=30) == 2
    assert outcomes(result.id) == [(1, "worker_lost"), (2, "returned")]


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
    assert outcomes(result.id) == [(1, "worker_lost"), (2, "returned")]
    first_name = Worker.objects.get(pk=Attempt.objects.get(run_id=result.id, number=1).worker)
    second_name = Worker.objects.get(pk=JobRun.objects.get(pk=later.id).locked_by)
    assert (first_name.pid, first_name.end_reason) == (frozen.pid, "lease_expired")
    assert (second_name.pid, second_name.stopped_at) == (frozen.pid, None)
    assert first_name.id != second_name.id


@pytest.mark.timed
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
    assert Attempt.objects.get(run_id=result.id, number=1).finished_at - at < promised(2)
    assert worker.alive
    assert psutil.Process(noted_pid(notes, "end", 2)).ppid() == worker.pid


def test_children_that_hang_before_they_take_a_run_up_lose_it_to_others(run: Programs, notes: Path) -> None:
    """No time limit counts yet, so that nothing else would ever end it."""
    worker = run.worker(concurrency=2, EVERYSLOT_LEASE="2", EVERYSLOT_HEARTBEAT="0.5").ready()
    run.beat().leads()
    assert noted.delay(str(notes), "before").get(timeout=30) == "before"
    hung = worker.children
    for child in hung:
        child.suspend()
    results = [noted.delay(str(notes), text) for text in ("one", "two", "three")]
    assert [each.get(timeout=30) for each in results] == ["one", "two", "three"]
    assert sorted(lines(notes)) == ["before 1", "one 1", "three 1", "two 1"]
    assert "did not take up run" in worker.log
    assert worker.alive
    assert not Attempt.objects.exists(), "no attempt was lost, and none doubled"
    assert not [child for child in hung if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.timed
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
    assert max(each.finished_at - each.started_at for each in attempts) < promised(2)
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


@pytest.fixture
def server() -> Iterator[NativeService]:
    """A PostgreSQL of the test's own, which it may stop."""
    with Services(environ={}) as services:
        services.start(["postgres"], durable=False)
        running = services.running["postgres"]
        assert isinstance(running, NativeService)
        yield running


def python(code: str, environment: dict[str, str]) -> None:
    """Run a piece of Python under our settings, on another database."""
    given = {"DEBUG": "true", "CELERY_SKIP_CHECKS": "1", "EVERYSLOT_TASK_MODULES": WORKLOAD} | environment
    setup = "import config.celery, django; django.setup()"
    subprocess.run([sys.executable, "-c", f"{setup}\n{code}"], cwd=ROOT, env=os.environ | given, check=True)


@mostly_on_postgres
def test_postgresql_away_for_longer_than_a_lease_loses_no_attempt_and_everything_ends(
    server: NativeService, run: Programs, broker: str, notes: Path, tmp_path: Path
) -> None:
    own = {
        "DATABASE_URL": server.url,
        "BROKER_URL": f"pgq+{server.url}" if broker == "postgres" else broker_url(broker),
    }
    lease = {"EVERYSLOT_LEASE": "2", "EVERYSLOT_HEARTBEAT": "0.5"}
    during, after = tmp_path / "during", tmp_path / "after"
    python(
        "from django.core.management import call_command as c; c('migrate', verbosity=0)\n"
        "from tests.support.workload import gated, noted\n"
        f"for gate in ({str(during)!r}, {str(after)!r}) * 2: gated.delay({str(notes)!r}, gate)\n"
        f"for number in range(6): noted.delay({str(notes)!r}, f'behind-{{number}}')",
        own,
    )
    beat = run.beat(**own, **lease)
    workers = [run.worker(name, concurrency=2, EVERYSLOT_PREFETCH="1", **own, **lease) for name in ("one", "two")]
    wait_until(lambda: len(lines(notes)) == 4, 60, "four to run, two on each worker")
    beat.leads()
    server.stop()
    wait_until(lambda: all(each.log.count(AWAY) * RETRY_SECONDS > 2.5 for each in workers), what="a lease to pass")
    during.touch()
    wait_until(lambda: len(lines(notes)) == 6, what="two to end while the database is away")
    server.start()
    server.wait_ready()
    after.touch()
    with psycopg.connect(server.url, autocommit=True) as database:

        def rows(columns: str, table: str) -> list[tuple[Any, ...]]:
            return database.execute(f"SELECT {columns} FROM scheduler_app_{table}").fetchall()

        wait_until(lambda: {status for (status,) in rows("status", "jobrun")} == {"succeeded"}, 60, "everything to end")
        assert rows("attempts", "jobrun") == [(1,)] * 10
        assert rows("outcome", "attempt") == []
        assert rows("end_reason", "worker") == [("",)] * 2
    said = sorted(line.rsplit(" ", 1)[0] for line in lines(notes))
    assert said == [*(f"behind-{number}" for number in range(6)), *["end 1"] * 4, *["start 1"] * 4]
    assert all(each.alive for each in (beat, *workers))


def test_a_worker_whose_ledger_has_failed_ends_and_its_run_is_taken_up(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    broken = f"{SETUP}from scheduler_app.worker.ledger import Ledger\nLedger._persist = lambda *_: 1 / 0"
    run.beat().leads()
    result = gated.delay(str(notes), str(gate))
    worker = run.worker("broken", before=broken)
    assert worker.wait(60) != 0
    worker.says("everyslot-ledger has failed")
    gate.touch()
    run.worker("whole").ready()
    assert result.get(timeout=60) >= 1
