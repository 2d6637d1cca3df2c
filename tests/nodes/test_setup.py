"""The worker through pytest-celery's eyes. Nothing here knows that its nodes are processes and not containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_celery import CeleryTestSetup

from scheduler_app.models import Attempt
from tests.support.programs import Programs, wait_until
from tests.support.workload import gated, lines, noted

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]


def test_the_setup_is_ready_to_every_question(celery_setup: CeleryTestSetup) -> None:
    assert celery_setup.ready(ping=True, control=True, docker=True)


def test_a_durable_run_is_worked_on_and_its_log_tells(celery_setup: CeleryTestSetup, tmp_path: Path) -> None:
    result = noted.delay(str(tmp_path / "notes"), "hello")
    assert result.get(timeout=30) == "hello"
    celery_setup.worker.assert_log_exists(f"{result.id}] succeeded")


def test_a_killed_and_restarted_worker_works_on(celery_setup: CeleryTestSetup, run: Programs, tmp_path: Path) -> None:
    run.beat().leads()
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    result = gated.delay(str(notes), str(gate))
    wait_until(lambda: lines(notes), what="the first attempt")
    celery_setup.worker.kill()
    celery_setup.worker.restart()
    gate.touch()
    assert result.get(timeout=30) == 2
    assert Attempt.objects.get(run_id=result.id, number=1).outcome == "worker_lost"
