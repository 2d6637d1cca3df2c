"""Real workers that are asked to stop: what runs ends well or is taken up again, what did not start costs nothing."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from celery import current_app

from scheduler_app.models import Attempt, JobRun, Worker
from tests.support.brokers import broker_url
from tests.support.programs import Programs, WorkerProcess, wait_until
from tests.support.workload import echo, gated, noted_pid

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]


def waiting(broker: str) -> int:
    """How many messages of the default queue no worker holds."""
    with current_app.connection_for_read(broker_url(broker)) as connection:
        return connection.default_channel.queue_declare("default", passive=True).message_count


def worker_of(run_id: Any) -> Worker:
    """The worker that ran it last."""
    return Worker.objects.get(pk=JobRun.objects.get(pk=run_id).locked_by)


def has_started(notes: Path, attempt: int) -> None:
    wait_until(lambda: noted_pid(notes, "start", attempt), what=f"attempt {attempt}")


def ends(worker: WorkerProcess) -> None:
    """Wait until it has ended, well."""
    assert worker.wait(30) == 0, worker.log
    row = Worker.objects.get(pid=worker.pid)
    assert row.stopped_at
    assert row.end_reason == "stopped"


def test_a_warm_stop_finishes_what_runs_and_gives_back_what_did_not_start(
    run: Programs, broker: str, notes: Path, tmp_path: Path
) -> None:
    gate, later = tmp_path / "gate", tmp_path / "later"
    later.touch()
    beat, first = run.beat(), run.worker("first")
    beat.leads()
    first.ready()
    for each in [echo.delay(number) for number in range(10)]:
        each.get(timeout=30)  # now it is known to be short, and may be claimed a little ahead
    running = gated.delay(str(notes), str(gate))
    has_started(notes, 1)
    ahead = [echo.delay(text) for text in ("one", "two")]
    prefetched = gated.delay(str(tmp_path / "other"), str(later))  # not known to be short: it waits as a message
    wait_until(lambda: waiting(broker) == 0, what="the first worker to hold all messages")
    second = run.worker("second").ready()
    assert JobRun.objects.get(pk=prefetched.id).attempts == 0
    first.kill(signal.SIGTERM)
    first.says("Warm shutdown")
    assert noted_pid(notes, "end", 1) is None
    gate.touch()
    ends(first)
    assert [each.get(timeout=30) for each in (*ahead, prefetched, running)] == ["one", "two", 1, 1]
    assert worker_of(running.id).pid == first.pid
    assert {worker_of(each.id).pid for each in (*ahead, prefetched)} == {second.pid}
    for each in JobRun.objects.all():
        assert (each.status, each.max_attempts - each.attempts) == ("succeeded", 4), "no attempt is used up"
    assert set(Attempt.objects.filter(number=1).values_list("outcome", flat=True)) <= {"given_back"}


def test_a_cold_stop_leaves_its_run_to_another_worker(run: Programs, notes: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    beat = run.beat()
    workers = [run.worker(name) for name in ("one", "two")]
    beat.leads()
    for each in workers:
        each.ready()
    result = gated.delay(str(notes), str(gate))
    has_started(notes, 1)
    stopped = run.worker_of(noted_pid(notes, "start", 1))
    stopped.kill(signal.SIGQUIT)
    has_started(notes, 2)
    assert run.worker_of(noted_pid(notes, "start", 2)) is not stopped
    gate.touch()
    ends(stopped)
    assert result.get(timeout=30) == 2
    assert noted_pid(notes, "end", 1) is None
    assert JobRun.objects.get(pk=result.id).max_attempts == 6  # the stopped attempt costs none
    assert list(Attempt.objects.values_list("number", "outcome")) == [(1, "stopped"), (2, "returned")]
