"""Real workers that are killed, frozen or cut off in the middle of a job: every run ends, once, and says why."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

import pytest

from scheduler_app.models import Attempt, JobRun
from scheduler_app.store.term import database_time
from tests.support.programs import Programs, wait_until
from tests.support.workload import gated, lines

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]


def started(notes: Path, attempt: int) -> bool:
    return any(line.startswith(f"start {attempt} ") for line in lines(notes))


def test_a_killed_workers_run_is_taken_up_within_three_seconds(run: Programs, notes: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run.beat().leads()
    first = run.worker("first").ready()
    result = gated.delay(str(notes), str(gate))
    wait_until(lambda: started(notes, 1), what="the first attempt")
    run.worker("second").ready()
    at = database_time()
    for child in first.children:
        child.suspend()
    first.kill(signal.SIGKILL)
    wait_until(lambda: started(notes, 2), what="the second attempt")
    row = JobRun.objects.get(pk=result.id)
    assert row.started_at - at < timedelta(seconds=3)
    gate.touch()
    assert result.get(timeout=30) == 2
    assert Attempt.objects.get(run_id=result.id, number=1).outcome == "lost"
