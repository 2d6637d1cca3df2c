"""Long-running tasks with real workers: no message waits for their end, and nothing but the lease tells of a death."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.db import connection

from scheduler_app.models import Attempt, JobRun
from tests.support.brokers import broker_url
from tests.support.programs import Programs, wait_until
from tests.support.workload import gated, gated_long, noted_pid

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

# Nothing is published again for its silence while the test looks.
PATIENT = {"EVERYSLOT_LOOP": "0.1", "EVERYSLOT_DISPATCH_TIMEOUT": "600"}


def starts(notes: Path, attempt: int) -> None:
    wait_until(lambda: noted_pid(notes, "start", attempt), what=f"attempt {attempt}")


def ready(broker: str) -> int:
    """Messages that no consumer holds."""
    with current_app.connection_for_read(broker_url(broker)) as opened:
        return opened.default_channel.queue_declare("default", passive=True).message_count


@pytest.mark.parametrize(("task", "left"), [(gated, 1), (gated_long, 0)], ids=["late", "early"])
def test_what_a_killed_worker_leaves_in_the_queue(
    run: Programs, broker: str, notes: Path, tmp_path: Path, task: Any, left: int
) -> None:
    worker = run.worker(**PATIENT).ready()  # no beat: nobody takes the run up again
    result = task.delay(str(notes), str(tmp_path / "never"))
    starts(notes, 1)
    if broker == "postgres":
        wait_until(lambda: kept(result.id) == left, what="the message to be settled")
    worker.kill(signal.SIGKILL)
    worker.wait()
    if broker == "rabbitmq":
        wait_until(lambda: ready(broker) == left, what="the message to come back or not")
    JobRun.objects.update(status="cancelled", finished_at="2026-01-01T00:00Z")  # it has no end of its own


def kept(run_id: str) -> int:
    """Its messages in PostgreSQL, held by a consumer or not."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM everyslot_transport_message WHERE strpos(payload, %s) > 0", [run_id])
        found = cursor.fetchone()
    assert found is not None
    return int(found[0])


def test_a_long_run_whose_worker_is_killed_goes_on_elsewhere(
    run: Programs, broker: str, notes: Path, tmp_path: Path
) -> None:
    run.beat(**PATIENT).leads()
    first = run.worker("first", **PATIENT).ready()
    result = gated_long.delay(str(notes), str(tmp_path / "gate"))
    starts(notes, 1)
    run.worker("second", **PATIENT).ready()
    first.kill(signal.SIGKILL)
    starts(notes, 2)
    (tmp_path / "gate").touch()
    assert result.get(timeout=30) == 2
    assert list(Attempt.objects.values_list("number", "outcome")) == [(1, "worker_lost"), (2, "returned")]


def test_a_long_run_in_a_warm_stop_ends_well(run: Programs, broker: str, notes: Path, tmp_path: Path) -> None:
    worker = run.worker(**PATIENT).ready()
    result = gated_long.delay(str(notes), str(tmp_path / "gate"))
    starts(notes, 1)
    worker.kill(signal.SIGTERM)
    worker.says("Warm shutdown")
    (tmp_path / "gate").touch()
    assert worker.wait(30) == 0
    assert result.get(timeout=5) == 1
