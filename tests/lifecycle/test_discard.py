"""Dead runs by what they have in common, and the decision that one stays dead."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.lifecycle.dead import Which, dead_runs
from scheduler_app.lifecycle.discard import discard
from scheduler_app.lifecycle.redrive import redrive
from scheduler_app.models import DeadLetter, Job, JobRun
from scheduler_app.store.define import database_now
from tests.support.definitions import a_job, a_run, known_tasks, options

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options()):
        yield


def letter_of(run: JobRun, **columns: Any) -> DeadLetter:
    return DeadLetter.objects.create(run_id=run.pk, attempt=run.attempts, reason="failed", **columns)


NOW = "now"
CHOICES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "all": ({}, {"late", "lost", "slow", "other"}),
    "of a job": ({"job": "report"}, {"late", "lost"}),
    "of a task": ({"task": "tests.other"}, {"other"}),
    "of a queue": ({"queue": "slow"}, {"slow"}),
    "for a reason": ({"reason": "worker_lost"}, {"lost"}),
    "with an error": ({"error": "50% of_it"}, {"slow"}),
    "since": ({"since": timedelta(hours=2)}, {"late", "lost", "other"}),
    "until": ({"until": timedelta(hours=2)}, {"slow"}),
    "two at once": ({"job": "report", "reason": "failed"}, {"late"}),
    "none": ({"task": "tests.gone"}, set()),
}


@pytest.mark.parametrize(("which", "found"), CHOICES.values(), ids=CHOICES)
def test_dead_runs_are_found_by_what_they_have_in_common(which: dict[str, Any], found: set[str]) -> None:
    job, now = a_job(), database_now()
    runs = {
        "late": a_run(job, status="dead"),
        "lost": a_run(job, status="dead", reason="worker_lost"),
        "slow": a_run(status="dead", queue="slow", last_error="lost 50% of_it", finished_at=now - timedelta(hours=3)),
        "other": a_run(status="dead", task="tests.other", last_error="lost 500 of it"),
    }
    a_run(job, status="cancelled")
    a_run(job)
    asked = {name: now - value if isinstance(value, timedelta) else value for name, value in which.items()}
    if "job" in asked:
        asked["job"] = Job.objects.get(name=asked["job"])
    chosen = list(dead_runs(Which(**asked)))
    assert {name for name, run in runs.items() if run in chosen} == found
    assert [run.seq for run in chosen] == sorted(run.seq for run in chosen)


def test_a_discarded_run_is_not_sent_back_with_the_others_and_its_next_death_is_open_again() -> None:
    run = a_run(status="dead", attempts=2)
    letter = letter_of(run)
    assert discard([letter.pk], "ann", " the customer has left ") == [letter.pk]
    letter.refresh_from_db()
    assert (letter.decision, letter.decided_by, letter.decision_reason) == ("discarded", "ann", "the customer has left")
    assert list(dead_runs(Which())) == []
    assert redrive([run.pk], "bob") == [run.pk], "who names it means it"
    JobRun.objects.filter(pk=run.pk).update(status="dead", reason="failed", attempts=3, finished_at=database_now())
    letter_of(JobRun.objects.get(pk=run.pk))
    assert list(dead_runs(Which())) == [run]


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_nothing_is_discarded_without_a_reason(reason: str) -> None:
    letter = letter_of(a_run(status="dead"))
    with pytest.raises(InvalidDefinition, match="reason"):
        discard([letter.pk], "ann", reason)
    letter.refresh_from_db()
    assert letter.decision == "open"


def test_what_was_decided_stays_so_and_what_is_not_there_is_left_out() -> None:
    run = a_run(status="dead")
    letter = letter_of(run)
    message = DeadLetter.objects.create(reason="not_a_hint", digest="d")
    redrive([run.pk], "ann")
    assert discard([letter.pk, message.pk, 10**12], "bob", "rubbish") == [message.pk]
    letter.refresh_from_db()
    assert (letter.decision, letter.decided_by) == ("redriven", "ann")


def test_any_text_is_a_reason() -> None:
    letter = letter_of(a_run(status="dead"))
    discard([letter.pk], "a" * 300, "nul \x00 and \ud800 " + "x" * 600)
    letter.refresh_from_db()
    assert len(letter.decision_reason) <= 500
    assert letter.decision_reason.startswith("nul ")


@pytest.mark.race
@pytest.mark.django_db(transaction=True)
def test_of_a_redrive_and_a_discard_at_once_one_has_decided() -> None:
    def decide(number: int) -> None:
        try:
            if number % 2:
                redrive([run.pk], "redriver")
            else:
                discard([letter.pk], "discarder", "rubbish")
        finally:
            connection.close()

    for _ in range(10):
        run = a_run(status="dead", attempts=1)
        letter = letter_of(run)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(decide, range(4)))
        letter.refresh_from_db()
        assert (letter.decision, letter.decided_by) in {("redriven", "redriver"), ("discarded", "discarder")}
        assert (letter.redriven_at is None) != (letter.discarded_at is None)
