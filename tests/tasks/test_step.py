"""Steps: a block is done once a run, together with its database work, and never by two at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from scheduler_app.core.errors import InvalidDefinition, RetryLater
from scheduler_app.models import ProcessedStep, Worker
from scheduler_app.testing import working_on
from scheduler_app.worker.context import current_run
from tasks import examples

DEADLINE = 10  # seconds


def step(run_id: UUID, name: str, work: Callable[[], Any]) -> Any:
    with working_on(examples.ok, run_id=run_id):
        return current_run().step(name, work)


class Work:
    """Counts how often it was done."""

    def __init__(self, result: Any = None) -> None:
        self.times = 0
        self.result = result

    def __call__(self) -> Any:
        self.times += 1
        return self.result


@pytest.mark.django_db
@pytest.mark.parametrize("result", [None, 0, "", False, [1, {"a": "ü"}], 1.5, "x" * 1000])
def test_a_step_is_done_once_and_its_result_comes_back_the_same(result: Any) -> None:
    run_id, work = uuid4(), Work(result)
    assert [step(run_id, "charge", work) for _ in range(3)] == [result] * 3
    assert work.times == 1


@pytest.mark.django_db
def test_the_first_result_is_already_as_it_will_be_remembered() -> None:
    run_id = uuid4()
    when = datetime(2026, 12, 1, tzinfo=UTC)
    first = step(run_id, "charge", lambda: (1, when))
    assert first == step(run_id, "charge", Work()) == [1, when]


@pytest.mark.django_db
def test_steps_are_told_apart_by_run_and_by_name() -> None:
    work = Work()
    for run_id in (uuid4(), uuid4()):
        for name in ("a", "b"):
            step(run_id, name, work)
    assert work.times == 4


@pytest.mark.django_db
def test_a_block_that_raises_is_not_remembered_and_its_rows_are_gone() -> None:
    run_id = uuid4()

    def half() -> None:
        ProcessedStep.objects.create(run_id=run_id, name="a row of the block")
        raise KeyError("half way")

    with pytest.raises(KeyError):
        step(run_id, "charge", half)
    assert ProcessedStep.objects.count() == 0
    work = Work()
    step(run_id, "charge", work)
    assert work.times == 1


@pytest.mark.django_db
@pytest.mark.parametrize("result", [object(), float("nan"), "a\0b", "x" * 300_000])
def test_a_result_that_cannot_be_kept_is_refused_and_undoes_the_block(result: Any) -> None:
    with pytest.raises(InvalidDefinition, match="result of step 'charge'"):
        step(uuid4(), "charge", lambda: result)
    assert ProcessedStep.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b"])
def test_a_bad_name_is_refused_before_anything_is_done(name: str) -> None:
    work = Work()
    with pytest.raises(InvalidDefinition, match="step"):
        step(uuid4(), name, work)
    assert work.times == 0


@pytest.mark.django_db
def test_remembered_says_whether_a_step_is_done() -> None:
    with working_on(examples.ok):
        run = current_run()
        assert run.remembered("charge", "not yet") == "not yet"
        run.step("charge", int, "7")
        assert run.remembered("charge", "not yet") == 7


@pytest.mark.django_db(transaction=True)
def test_a_step_inside_a_transaction_is_forgotten_with_it() -> None:
    run_id, work = uuid4(), Work()
    with transaction.atomic():
        step(run_id, "charge", work)
        transaction.set_rollback(True)
    step(run_id, "charge", work)
    assert work.times == 2
    assert ProcessedStep.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.race
def test_two_attempts_are_never_in_one_block_and_the_second_finds_the_result() -> None:
    run_id, inside, go_on = uuid4(), threading.Event(), threading.Event()

    def slow_block() -> str:
        inside.set()
        assert go_on.wait(DEADLINE)
        return "charged"

    def first_attempt() -> Any:
        try:
            return step(run_id, "charge", slow_block)
        finally:
            connection.close()

    work = Work()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(first_attempt)
        assert inside.wait(DEADLINE)
        try:
            with pytest.raises(RetryLater, match="another attempt is in step 'charge'"):
                step(run_id, "charge", work)
            assert step(run_id, "another step", Work("free")) == "free"
        finally:
            go_on.set()
        assert first.result(DEADLINE) == "charged"
    assert step(run_id, "charge", work) == "charged"
    assert work.times == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.race
def test_eight_attempts_at_once_do_the_block_once() -> None:
    run_id, done = uuid4(), []
    start = threading.Barrier(8)

    def attempt(_: int) -> str:
        try:
            start.wait(DEADLINE)
            step(run_id, "charge", lambda: done.append(1))
            return "done"
        except RetryLater:
            return "later"
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(attempt, range(8)))
    assert len(done) == ProcessedStep.objects.count() == 1
    assert set(ends) <= {"done", "later"}
    assert "done" in ends


@pytest.mark.django_db
def test_working_on_a_run_writes_nothing_about_it() -> None:
    with working_on(examples.ok, attempt=3) as run_id:
        run = current_run()
        run.progress(100, "done")
        assert not run.cancelled
        assert (run.id, run.attempt, run.idempotency_key) == (run_id, 3, str(run_id))
    assert Worker.objects.count() == 0
