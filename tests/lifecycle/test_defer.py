"""Runs whose task a worker does not know: they wait, in sight and not for ever."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import DataError, transaction
from pytest_django import Settings

from scheduler_app.lifecycle.claim import write
from scheduler_app.lifecycle.defer import Unknown, defer, defer_apart
from scheduler_app.lifecycle.redrive import redrive
from scheduler_app.models import DeadLetter, JobRun
from scheduler_app.models.ids import new_id
from scheduler_app.store.define import database_now
from scheduler_app.store.work import Wanted
from tests.support.definitions import a_run, known_tasks, options

pytestmark = pytest.mark.django_db

PATIENCE = 1800.0


def hint(run: JobRun, **other: object) -> Unknown:
    given: dict[str, object] = {"run_id": run.pk, "attempt": run.attempts, "task": run.task}
    return Unknown(**given | other)  # type: ignore[arg-type]


def waiting(run: JobRun, seconds: float) -> JobRun:
    """As if it had waited so long already."""
    run.unknown_since = database_now() - timedelta(seconds=seconds)
    run.save(update_fields=["unknown_since"])
    return run


def deferred(run: JobRun) -> JobRun:
    assert defer([hint(run)], "one@test") == {run.pk}
    run.refresh_from_db()
    return run


@pytest.mark.parametrize("waited", [None, 0.0, 8.0, 100.0, 235.0, 237.0, 1000.0])
def test_the_pause_grows_with_what_the_run_has_waited_up_to_a_minute(waited: float | None) -> None:
    run = a_run(dispatched_at=database_now(), dispatches=2)
    if waited is not None:
        waiting(run, waited)
    before = database_now()
    run = deferred(run)
    after = database_now()
    assert (run.status, run.attempts, run.dispatched_at, run.dispatches) == ("queued", 0, None, 0)
    assert run.last_error == "one@test does not know this task"
    since = run.unknown_since
    assert since is not None
    assert waited is not None or before <= since <= after
    assert before + pause(before - since) <= run.run_after <= after + pause(after - since)


def pause(waited: timedelta) -> timedelta:
    return min(timedelta(minutes=1), timedelta(seconds=1) + max(waited, timedelta()) / 4)


def test_a_run_that_waited_in_vain_is_dead_with_its_dead_letter() -> None:
    run = deferred(waiting(a_run(attempts=1), PATIENCE + 1))
    assert (run.status, run.reason) == ("dead", "unknown_task")
    assert run.finished_at is not None
    letter = DeadLetter.objects.get()
    assert (letter.run_id, letter.attempt, letter.task, letter.reason) == (run.pk, 1, run.task, "unknown_task")


def test_no_patience_at_all_is_a_choice(settings: Settings) -> None:
    settings.EVERYSLOT = settings.EVERYSLOT | {"unknown_task_wait": 0}
    assert deferred(a_run()).reason == "unknown_task"


def test_what_waited_for_the_dead_run_is_free() -> None:
    holder = waiting(a_run(), PATIENCE + 1)
    held = a_run(held_by=holder.pk)
    deferred(holder)
    held.refresh_from_db()
    assert held.held_by is None


def test_a_held_run_stays_as_it_is() -> None:
    run = a_run(held_by=a_run().pk)
    assert deferred(run).unknown_since is None


@pytest.mark.parametrize("status", ["queued", "running", "succeeded", "dead"])
def test_a_late_hint_changes_nothing_and_is_true(status: str) -> None:
    run = a_run(status=status, attempts=1)
    assert defer([hint(run, attempt=0)], "one@test") == {run.pk}
    before, after = run, JobRun.objects.get(pk=run.pk)
    assert (after.status, after.run_after, after.unknown_since) == (status, before.run_after, None)


def test_hints_of_no_run_and_of_another_task_are_not_true() -> None:
    run = a_run()
    strangers = [Unknown(new_id(), 0, run.task), hint(run, task="tests.other"), Unknown(UUID(int=1), 2**31 - 1, "")]
    assert defer(strangers, "one@test") == set()
    run.refresh_from_db()
    assert run.unknown_since is None


def test_two_hints_of_one_run_in_a_batch_are_one() -> None:
    run = waiting(a_run(attempts=3), PATIENCE + 1)
    assert defer([hint(run), hint(run, attempt=1), hint(run)], "one@test") == {run.pk}
    assert DeadLetter.objects.count() == 1


def test_a_forged_hint_beside_the_true_one_takes_nothing_from_it() -> None:
    run = a_run(attempts=1)
    assert defer([hint(run, attempt=9), hint(run), hint(run, task="tests.other")], "one@test") == {run.pk}
    run.refresh_from_db()
    assert run.unknown_since is not None


def test_the_error_links_of_a_run_that_waited_in_vain_follow() -> None:
    link = {"task": "tests.report", "args": ["after"], "kwargs": {}, "options": {}, "immutable": False}
    dead = a_run(trigger="code", canvas={"link_error": [link], "link": [link]})
    with known_tasks(options()):
        deferred(waiting(dead, PATIENCE + 1))
    follower = JobRun.objects.exclude(pk=dead.pk).get()
    assert (follower.status, follower.args) == ("queued", [str(dead.pk), "after"])


def test_a_run_that_still_waits_has_no_followers() -> None:
    link = {"task": "tests.report", "args": [], "kwargs": {}, "options": {}, "immutable": False}
    deferred(a_run(trigger="code", canvas={"link_error": [link]}))
    assert JobRun.objects.count() == 1


def test_a_hint_that_postgres_refuses_costs_its_neighbours_nothing() -> None:
    runs = [a_run(), a_run()]
    hints = [hint(runs[0]), hint(a_run(), attempt=2**31), hint(runs[1])]
    with pytest.raises(DataError), transaction.atomic():
        defer(hints, "one@test")
    assert defer_apart(hints, "one@test") == {run.pk for run in runs}


def test_a_redrive_begins_the_patience_anew() -> None:
    dead = deferred(waiting(a_run(), PATIENCE + 1))
    assert redrive([dead.pk], by="tester")
    dead.refresh_from_db()
    assert (dead.status, dead.unknown_since) == ("queued", None)


def test_a_claim_ends_the_wait() -> None:
    run = waiting(a_run(run_after=database_now()), 60)
    assert write(new_id(), [], [Wanted(run.pk, 0)]).claimed
    run.refresh_from_db()
    assert run.unknown_since is None
