"""`AsyncResult` of a run, step by step: what Celery's documentation says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from celery.exceptions import TaskRevokedError
from celery.exceptions import TimeoutError as ResultTimeout
from celery.result import AsyncResult
from django_celery_results.models import TaskResult

from scheduler_app.lifecycle.cancel import cancel
from scheduler_app.models import JobRun
from tests.support import endings
from tests.support.brokers import broker_url
from tests.support.programs import Programs, wait_until
from tests.support.workload import gated, lines, noted, plain

pytestmark = pytest.mark.system


@pytest.mark.django_db(transaction=True)
def test_a_run_answers_as_celery_says_from_queued_to_its_end(
    run: Programs, broker: str, notes: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    cancelled = noted.delay(str(notes), "never")
    cancel([JobRun.objects.get().pk], "ann")
    assert_answers(cancelled, "REVOKED", ready=True)
    with pytest.raises(TaskRevokedError, match="requested"):
        cancelled.get(timeout=1)
    made = gated.delay(str(notes), str(gate))
    result: AsyncResult[int] = AsyncResult(made.id)
    assert_answers(result, "PENDING")
    with pytest.raises(ResultTimeout):
        result.get(timeout=0.2, interval=0.05)
    run.worker(**endings.MODULES).ready()
    wait_until(lambda: result.state == "STARTED", 30, "the start")
    assert_answers(result, "STARTED")
    with pytest.raises(ResultTimeout):
        result.get(timeout=0.2, interval=0.05)
    gate.touch()
    assert result.get(timeout=30, interval=0.05) == 1
    assert_answers(result, "SUCCESS", ready=True, value=1)
    assert (result.name, result.args, result.kwargs) == (gated.name, [str(notes), str(gate)], {})
    assert result.date_done is not None
    dead = endings.choosy.delay("/dev/null", "ValueError")
    with pytest.raises(ValueError, match=r"^as asked$"):
        dead.get(timeout=60, interval=0.05)
    assert (dead.state, dead.ready(), dead.successful(), dead.failed()) == ("FAILURE", True, False, True)
    assert isinstance(dead.get(propagate=False), ValueError)
    assert "in choosy" in dead.traceback
    waits = endings.later.delay(str(notes), 3600)
    wait_until(lambda: waits.state == "RETRY", 30, "the retry")
    assert (waits.ready(), waits.successful(), waits.failed()) == (False, False, False)
    assert "not ready" in str(waits.result)
    with current_app.connection_for_write(broker_url(broker)) as there:  # this process knows one broker by itself
        ordinary = plain.apply_async((str(notes), "ordinary"), connection=there)
    assert ordinary.get(timeout=60, interval=0.05) == "ordinary"
    assert list(TaskResult.objects.values_list("task_id", "status")) == [(ordinary.id, "SUCCESS")]
    assert not JobRun.objects.filter(pk=ordinary.id).exists()
    assert "never 1" not in lines(notes)


def assert_answers(result: AsyncResult[Any], state: str, *, ready: bool = False, value: Any = None) -> None:
    """What Celery's documentation says of a run that has no error."""
    assert (result.state, result.status, result.ready()) == (state, state, ready)
    assert (result.successful(), result.failed(), result.traceback) == (state == "SUCCESS", False, None)
    if state != "REVOKED":
        assert result.result == value
