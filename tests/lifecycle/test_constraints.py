"""What the tables themselves refuse, whoever writes: each constraint has cases that break it and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction

from scheduler_app.models import Attempt, DeadLetter, Job, ProcessedStep, SkippedRange, Term, Worker
from scheduler_app.models.ids import new_id
from tests.support.definitions import a_run

pytestmark = pytest.mark.django_db

CONSTRAINTS = {
    constraint.name: (model, constraint)
    for model in apps.get_app_config("scheduler_app").get_models()
    for constraint in model._meta.constraints
}
FINAL = ("succeeded", "dead", "cancelled", "skipped")
SLOT = datetime(2026, 12, 1, 9, tzinfo=UTC)
LATER = SLOT + timedelta(hours=1)
RUN, OTHER_RUN = UUID(int=1), UUID(int=2)
numbers = itertools.count()
Write = Callable[[], object]


def job(**columns: Any) -> Job:
    return Job.objects.create(**{"name": f"job {next(numbers)}", "task": "tests.report"} | columns)


def letter(**columns: Any) -> DeadLetter:
    return DeadLetter.objects.create(**{"reason": "tests"} | columns)


def skipped(of: Job, **columns: Any) -> SkippedRange:
    given = {"first": SLOT, "last": LATER, "count": 61, "reason": "misfire", "job_version": 1}
    return SkippedRange.objects.create(job=of, **given | columns)


def attempt(**columns: Any) -> Attempt:
    given = {"run_id": RUN, "number": 1, "started_at": SLOT, "outcome": "lost"}
    return Attempt.objects.create(**given | columns)


def worker(**columns: Any) -> Worker:
    return Worker.objects.create(**{"name": "w", "lease": 30, "lock_key": 1} | columns)


def slot_twice() -> None:
    of = job()
    a_run(of, scheduled_for=SLOT, status="cancelled")
    a_run(of, scheduled_for=SLOT)


def range_twice() -> None:
    of = job()
    skipped(of)
    skipped(of, last=SLOT, count=1)


def each_twice(make: Callable[..., object], **columns: Any) -> Write:
    return lambda: (make(**columns), make(**columns))


def without_an_end(status: str) -> Write:
    return lambda: a_run(status=status, reason="x", finished_at=None)


def twice_a_step() -> None:
    for _ in range(2):
        ProcessedStep.objects.create(run_id=RUN, name="pay")


BREAKING: dict[str, dict[str, Write]] = {
    "job_priority": {"a job of priority 10": lambda: job(priority=10)},
    "job_time_limit": {"a job without time": lambda: job(time_limit=0)},
    "job_max_attempts": {"a job without attempts": lambda: job(max_attempts=0)},
    "job_window": {"a job that ends before it starts": lambda: job(start_at=LATER, end_at=SLOT)},
    "job_quarantine_has_reason": {"a job set aside without a word": lambda: job(quarantined_at=SLOT)},
    "run_one_per_slot": {"two runs of one slot, one of them over": slot_twice},
    "run_request_key": {"two runs for one request": each_twice(a_run, request_key="r")},
    "run_one_per_concurrency_key": {
        "two running under one key": each_twice(a_run, status="running", concurrency_key="k"),
    },
    "run_status": {"a run in no known state": lambda: a_run(status="failed")},
    "run_priority": {"a run of priority 10": lambda: a_run(priority=10)},
    "run_time_limit": {"a run without time": lambda: a_run(time_limit=0)},
    "run_attempts": {"more attempts than allowed": lambda: a_run(attempts=2, max_attempts=1)},
    "run_running_is_owned": {
        "running without a worker": lambda: a_run(status="running", locked_by=None),
        "running without a lease": lambda: a_run(status="running", locked_until=None),
        "running without a start": lambda: a_run(status="running", started_at=None),
        "running without an attempt": lambda: a_run(status="running", attempts=0),
    },
    "run_queued_is_free": {"queued and owned": lambda: a_run(locked_by=OTHER_RUN)},
    "run_final_has_an_end": {
        **{f"{status} without an end": without_an_end(status) for status in FINAL},
        "queued with an end": lambda: a_run(finished_at=SLOT),
        "running with an end": lambda: a_run(status="running", finished_at=SLOT),
    },
    "run_success_was_tried": {"a success of no attempt": lambda: a_run(status="succeeded", attempts=0)},
    "run_skip_has_a_reason": {"skipped without a word": lambda: a_run(status="skipped", reason="")},
    "run_dead_has_a_reason": {"dead without a word": lambda: a_run(status="dead", reason="")},
    "run_held_is_queued": {
        "held and running": lambda: a_run(status="running", held_by=OTHER_RUN),
        "held and dead": lambda: a_run(status="dead", held_by=OTHER_RUN),
        "held and published": lambda: a_run(held_by=OTHER_RUN, dispatched_at=SLOT),
    },
    "run_progress": {
        "more than all of it": lambda: a_run(progress=100.5),
        "less than nothing": lambda: a_run(progress=-0.5),
    },
    "dead_letter_once_per_attempt": {"two notes of one attempt": each_twice(letter, run_id=RUN, attempt=1)},
    "dead_letter_once_per_message": {"two notes of one message": each_twice(letter, digest="d")},
    "skipped_range_once": {"two gaps from one slot": range_twice},
}


def test_every_constraint_of_the_models_has_a_case_and_every_case_a_constraint() -> None:
    assert set(BREAKING) == set(CONSTRAINTS)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        pytest.param(name, write, id=f"{name}: {says}")
        for name, cases in BREAKING.items()
        for says, write in cases.items()
    ],
)
def test_the_table_refuses(name: str, write: Write) -> None:
    """And by this constraint alone: without it, the same rows are taken."""
    assert refused_by(write) == name
    model, constraint = CONSTRAINTS[name]
    with connection.schema_editor(atomic=False) as editor:
        editor.remove_constraint(model, constraint)
    write()


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda: (job(priority=9), a_run(priority=9), a_run(priority=0)), id="priorities 9 and 0"),
        pytest.param(lambda: job(start_at=SLOT, end_at=SLOT), id="a window of one instant"),
        pytest.param(lambda: job(quarantined_at=SLOT, quarantine_reason="why"), id="a quarantine with its reason"),
        pytest.param(each_twice(a_run, scheduled_for=SLOT), id="two ad-hoc runs of one instant"),
        pytest.param(each_twice(a_run), id="two runs without a request key"),
        pytest.param(
            lambda: (a_run(request_key="r"), a_run(request_key="r", task="tests.greet")), id="one key for two tasks"
        ),
        pytest.param(
            lambda: [a_run(status=status, concurrency_key="k") for status in ("queued", "queued", "running", *FINAL)],
            id="a key that one runs under, and others wait or are over",
        ),
        pytest.param(each_twice(a_run, status="running"), id="two running without a key"),
        pytest.param(lambda: (a_run(progress=0), a_run(progress=100)), id="nothing and all of it done"),
        pytest.param(lambda: a_run(attempts=5, max_attempts=5), id="all attempts used"),
        pytest.param(lambda: a_run(held_by=OTHER_RUN), id="held and queued"),
        pytest.param(
            lambda: (letter(run_id=RUN, attempt=1), letter(run_id=RUN, attempt=2), letter(run_id=OTHER_RUN, attempt=1)),
            id="notes of several attempts and runs",
        ),
        pytest.param(each_twice(letter), id="two notes that name no run"),
    ],
)
def test_the_table_takes(write: Write) -> None:
    write()


@pytest.mark.parametrize(
    ("key", "write"),
    [
        pytest.param("scheduler_app_attempt_pkey", each_twice(attempt), id="one end an attempt"),
        pytest.param("scheduler_app_jobrun_pkey", each_twice(a_run, id=RUN), id="one run an id"),
        pytest.param("scheduler_app_jobrun_seq_key", each_twice(a_run, seq=10**9), id="one run a number"),
        pytest.param("scheduler_app_job_name_key", each_twice(job, name="report"), id="one job a name"),
        pytest.param("scheduler_app_worker_pkey", each_twice(worker, id=RUN), id="one row a worker's start"),
        pytest.param("scheduler_app_term_pkey", each_twice(Term.objects.create, shard=7), id="one term a shard"),
        pytest.param("processed_steps_pkey", twice_a_step, id="a step done once"),
    ],
)
def test_the_keys_refuse_a_second_row(key: str, write: Write) -> None:
    assert refused_by(write) == key


def refused_by(write: Write) -> str | None:
    """The constraint that the database names when it refuses."""
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        write()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    return refused.value.__cause__.diag.constraint_name  # type: ignore[union-attr]


def test_ids_are_of_version_7_and_ordered_by_time() -> None:
    ids = [new_id() for _ in range(1000)]
    assert {each.version for each in ids} == {7}
    assert ids == sorted(ids)
