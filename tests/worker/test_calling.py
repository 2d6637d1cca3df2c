"""`.delay()` and `apply_async`: a run and its message exist if and only if the caller's transaction commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from celery import chain, current_app
from django.db import connection, connections, transaction

from scheduler_app import durable_task
from scheduler_app.broker import publisher as publishing
from scheduler_app.core.errors import InvalidDefinition, LostGround
from scheduler_app.models import JobRun
from scheduler_app.models.ids import new_id
from scheduler_app.store.term import database_time
from tests.support.brokers import FakeBroker

pytestmark = pytest.mark.django_db
with_commits = pytest.mark.django_db(transaction=True)


@durable_task(time_limit=77, priority=6)
def add(x: int, y: int = 0) -> int:
    """A task to call."""
    return x + y


@durable_task
def other(x: int) -> int:
    """Another one."""
    return x


@durable_task
def anything(*args: Any, **kwargs: Any) -> None:
    """Takes whatever JSON can carry."""


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    """Where this process publishes; only the moment matters here."""
    fake = FakeBroker()
    monkeypatch.setattr(publishing, "_publisher", fake)
    return fake


@pytest.fixture
def second_alias() -> Iterator[str]:
    """A second alias; it leads to the same server, which is all that a transaction of its own needs."""
    second = connection.copy("second")
    second.connect()  # before it has a name: Django's tests forbid connections that they did not know at their start
    connections.settings["second"], connections["second"] = dict(connection.settings_dict), second
    try:
        yield "second"
    finally:
        second.close()
        del connections["second"], connections.settings["second"]


def published(broker: FakeBroker) -> set[str]:
    return {str(hint.run_id) for hint in broker.published}


def runs() -> set[str]:
    return {str(pk) for pk in JobRun.objects.values_list("pk", flat=True)}


class Undone(Exception):
    """Rolls a block back."""


@contextmanager
def undone() -> Iterator[None]:
    """A transaction, or a savepoint of one, that rolls back."""
    with suppress(Undone), transaction.atomic():
        yield
        raise Undone


# Transactions


@with_commits
def test_without_a_transaction_the_run_is_there_and_published_at_once(broker: FakeBroker) -> None:
    result = add.delay(1, y=2)
    row = JobRun.objects.get()
    assert (str(row.pk), row.task, row.args, row.payload) == (result.id, add.name, [1], {"y": 2})
    assert (row.status, row.attempts, row.trigger, row.dispatches) == ("queued", 0, "code", 1)
    assert [(hint.run_id, hint.task, hint.attempt) for hint in broker.published] == [(row.pk, add.name, 0)]


@with_commits
def test_inside_a_transaction_nothing_is_published_before_the_commit(broker: FakeBroker) -> None:
    with transaction.atomic():
        ids = {add.delay(n).id for n in range(3)}
        assert runs() == ids
        assert published(broker) == set()
    assert runs() == published(broker) == ids


@with_commits
def test_a_transaction_that_rolls_back_takes_run_and_message_along(broker: FakeBroker) -> None:
    with undone():
        add.delay(1)
    assert runs() == published(broker) == set()
    kept = add.delay(2).id
    assert runs() == published(broker) == {kept}


@with_commits
def test_the_next_transaction_publishes_nothing_of_one_that_rolled_back(broker: FakeBroker) -> None:
    with undone():
        add.delay(1)
    with transaction.atomic():
        kept = {add.delay(2).id, add.delay(3).id}
    assert runs() == published(broker) == kept


@with_commits
@pytest.mark.parametrize("taken_back", [0, 1, 2], ids=["the first", "the middle", "the last"])
def test_a_savepoint_that_rolls_back_takes_its_own_run_and_not_its_neighbours(
    broker: FakeBroker, taken_back: int
) -> None:
    kept = set()
    with transaction.atomic():
        for n in range(3):
            with undone() if n == taken_back else transaction.atomic():
                run_id = add.delay(n).id
            kept |= set() if n == taken_back else {run_id}
    assert len(kept) == 2
    assert runs() == published(broker) == kept


@with_commits
def test_a_savepoint_alone_that_rolls_back_leaves_nothing_to_publish(broker: FakeBroker) -> None:
    with transaction.atomic():
        with undone():
            add.delay(1)
        transaction.on_commit(lambda: None)
    assert runs() == published(broker) == set()


@with_commits
def test_runs_of_one_transaction_are_published_in_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    class Counting(FakeBroker):
        def publish(self, hints: Any) -> frozenset[UUID]:
            calls.append(len(hints))
            return super().publish(hints)

    monkeypatch.setattr(publishing, "_publisher", Counting())
    with transaction.atomic():
        for n in range(5):
            add.delay(n)
    assert calls == [5]


@with_commits
def test_what_the_broker_did_not_confirm_goes_back_to_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_publisher", FakeBroker(answered=False))
    result = add.delay(1)
    row = JobRun.objects.get(pk=result.id)
    assert (row.status, row.dispatched_at) == ("queued", None)


@with_commits
def test_a_transaction_of_another_database_alone_is_refused(second_alias: str, broker: FakeBroker) -> None:
    with transaction.atomic(using=second_alias), pytest.raises(LostGround, match="'second' only"):
        add.delay(1)
    assert runs() == published(broker) == set()


@with_commits
def test_a_transaction_of_another_database_beside_ours_is_fine(second_alias: str, broker: FakeBroker) -> None:
    with transaction.atomic(using=second_alias), transaction.atomic():
        result = add.delay(1)
    assert runs() == published(broker) == {result.id}


# Ids and keys


@pytest.mark.parametrize(
    "task_id", [str(uuid4()), str(new_id()), uuid4().hex], ids=["uuid4", "uuid7", "without dashes"]
)
def test_a_callers_own_task_id_is_the_runs_id(task_id: str) -> None:
    result = add.apply_async((1,), task_id=task_id)
    assert runs() == {result.id} == {str(UUID(task_id))}


@with_commits
def test_the_same_task_id_twice_is_one_run(broker: FakeBroker) -> None:
    task_id = str(uuid4())
    assert [add.apply_async((n,), task_id=task_id).id for n in (1, 2)] == [task_id, task_id]
    assert JobRun.objects.get().args == [1]
    assert len(broker.published) == 1


def test_the_task_id_of_another_tasks_run_is_refused() -> None:
    task_id = str(uuid4())
    add.apply_async((1,), task_id=task_id)
    with pytest.raises(InvalidDefinition, match=f"^task_id: .* is the id of a run of {add.name}"):
        other.apply_async((1,), task_id=task_id)


@with_commits
def test_a_request_key_twice_is_one_run(broker: FakeBroker) -> None:
    first, second = (add.apply_async((n,), request_key="order 17") for n in (1, 2))
    assert first.id == second.id
    assert JobRun.objects.get().args == [1]
    assert len(broker.published) == 1


def test_a_request_key_is_unique_with_its_task_only() -> None:
    ids = {task.apply_async((1,), request_key="order 17").id for task in (add, other)}
    assert runs() == ids
    assert len(ids) == 2


def test_a_request_key_is_free_again_when_its_transaction_rolled_back() -> None:
    with undone():
        add.apply_async((1,), request_key="order 17")
    result = add.apply_async((2,), request_key="order 17")
    assert JobRun.objects.get().args == [2]
    assert runs() == {result.id}


# Options


def test_the_tasks_own_options_reach_the_row() -> None:
    add.delay(1)
    row = JobRun.objects.get()
    assert (row.time_limit, row.priority, row.queue, row.max_attempts) == (77, 6, "default", 5)


def test_the_callers_options_win_over_the_tasks() -> None:
    add.apply_async((1,), queue="slow", priority=9, time_limit=5, max_attempts=2, concurrency_key="c", ordering_key="o")
    row = JobRun.objects.get()
    assert (row.queue, row.priority, row.time_limit, row.max_attempts) == ("slow", 9, 5, 2)
    assert (row.concurrency_key, row.ordering_key) == ("c", "o")


@pytest.mark.parametrize("priority", [0, 9])
def test_the_lowest_and_the_highest_priority_are_taken_as_given(priority: int) -> None:
    add.apply_async((1,), priority=priority)
    assert JobRun.objects.get().priority == priority


@with_commits
def test_a_countdown_delays_the_run_in_the_database_and_publishes_nothing(broker: FakeBroker) -> None:
    before = database_time()
    add.apply_async((1,), countdown=60)
    row = JobRun.objects.get()
    assert row.dispatched_at is None
    assert before + timedelta(seconds=60) <= row.run_after <= database_time() + timedelta(seconds=60)
    assert broker.published == []


@with_commits
@pytest.mark.parametrize("countdown", [0, -5, 0.0])
def test_a_countdown_of_nothing_is_due_at_once(broker: FakeBroker, countdown: float) -> None:
    add.apply_async((1,), countdown=countdown)
    assert JobRun.objects.get().run_after <= database_time()
    assert len(broker.published) == 1


ETA = datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "eta",
    [ETA, ETA.replace(tzinfo=None), ETA.isoformat(), ETA.astimezone(ZoneInfo("Asia/Kolkata"))],
    ids=["aware", "naive means UTC", "text", "another zone"],
)
@pytest.mark.parametrize(("option", "column"), [("eta", "run_after"), ("expires", "expires_at")])
def test_an_instant_reaches_the_row(option: str, column: str, eta: Any) -> None:
    add.apply_async((1,), **{option: eta})
    assert getattr(JobRun.objects.get(), column) == ETA


def test_expires_in_seconds_counts_from_now() -> None:
    add.apply_async((1,), expires=90)
    left = JobRun.objects.get().expires_at - database_time()
    assert timedelta(seconds=80) < left <= timedelta(seconds=91)


def test_arguments_reach_the_row_as_called() -> None:
    anything.delay(1, None, "ü", [1.5], when=ETA, nested={"a": [True]})
    row = JobRun.objects.get()
    assert row.args == [1, None, "ü", [1.5]]
    assert row.payload["nested"] == {"a": [True]}
    assert row.payload["when"]["__type__"] == "datetime"


# Other ways to call


@with_commits
def test_adelay_makes_a_run_for_an_async_caller(broker: FakeBroker) -> None:
    result = async_to_sync(add.adelay)(1, y=2)
    assert runs() == published(broker) == {result.id}


def test_calling_the_task_as_a_function_makes_no_run() -> None:
    assert add(1, 2) == 3
    assert runs() == set()


@pytest.fixture
def eager() -> Iterator[None]:
    current_app.conf.task_always_eager = True
    yield
    current_app.conf.task_always_eager = False


@pytest.mark.usefixtures("eager")
def test_an_eager_call_runs_at_once_and_makes_no_run(broker: FakeBroker) -> None:
    result = add.delay(1, y=2)
    assert (result.get(), result.state, result.successful()) == (3, "SUCCESS", True)
    assert runs() == published(broker) == set()


@pytest.mark.usefixtures("eager")
def test_an_eager_chain_passes_its_results() -> None:
    assert chain(add.s(1, 2), add.s(3), other.s()).delay().get() == 6


@pytest.mark.usefixtures("eager")
def test_an_eager_calls_error_comes_with_its_result() -> None:
    result = other.delay("x")
    assert result.get() == "x"
    with pytest.raises(TypeError):
        add.delay(1, y="x").get()


def test_a_result_of_a_run_that_nobody_took_times_out() -> None:
    result = add.delay(1)
    assert (result.state, result.ready(), result.result) == ("PENDING", False, None)
