"""A deploy with real workers: a run whose task is not known yet waits for a worker that knows it, not for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import chain

from scheduler_app.models import DeadLetter, JobRun
from tasks.examples import ok
from tests.support.programs import Programs, wait_until
from tests.support.workload import lines, noted

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

QUICK = {"EVERYSLOT_LOOP": "0.1"}
YESTERDAY = {"EVERYSLOT_TASK_MODULES": "tasks"}  # a worker that does not know tests/support/workload.py


def test_a_run_that_only_todays_worker_knows_waits_for_it_beside_yesterdays(run: Programs, notes: Path) -> None:
    run.beat(**QUICK).leads()
    old = run.worker("old", **YESTERDAY | QUICK).ready()
    result = noted.delay(str(notes))
    old.says("is not known here: it waits")
    wait_until(lambda: JobRun.objects.filter(pk=result.id, unknown_since__isnull=False), what="the wait on record")
    waiting = JobRun.objects.get(pk=result.id)
    assert (waiting.status, waiting.attempts) == ("queued", 0)
    assert waiting.last_error.startswith("old@test does not know this task")
    run.worker("new", **QUICK).ready()
    assert result.get(timeout=60) == "done"
    assert lines(notes) == ["done 1"]
    assert not DeadLetter.objects.exists()
    assert old.lines_of_error == []


def test_a_chain_goes_on_whose_next_task_yesterdays_worker_has_not_heard_of(run: Programs, notes: Path) -> None:
    run.beat(**QUICK).leads()
    old = run.worker("old", **YESTERDAY | QUICK).ready()
    result = chain(ok.s(), noted.si(str(notes)), noted.si(str(notes))).delay()
    old.says("is not known here: it waits")
    run.worker("new", **QUICK).ready()
    assert result.get(timeout=60) == "done"
    assert lines(notes) == ["done 1"] * 2
    assert [each.status for each in JobRun.objects.all()] == ["succeeded"] * 3
    assert not DeadLetter.objects.exists()
    assert old.lines_of_error == []


def test_a_run_that_no_worker_knows_is_dead_after_its_patience(run: Programs, notes: Path) -> None:
    run.beat(**QUICK).leads()
    old = run.worker("old", EVERYSLOT_UNKNOWN_TASK_WAIT="0.5", **YESTERDAY | QUICK).ready()
    result = noted.delay(str(notes))
    wait_until(lambda: JobRun.objects.filter(pk=result.id, status="dead"), what="its end")
    letter = DeadLetter.objects.get()
    assert (str(letter.run_id), letter.task, letter.reason) == (result.id, noted.name, "unknown_task")
    assert old.log.count("is not known here: it waits") >= 2
    with pytest.raises(Exception, match="old@test does not know this task"):
        result.get(timeout=10)
