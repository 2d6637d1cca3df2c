"""`.delay()` and `apply_async`: a run and its message exist if and only if the caller's transaction commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from celery import chain, chord, current_app, group
from django.db import connection, connections, transaction

from scheduler_app import durable_task
from scheduler_app.broker import publisher as publishing
from scheduler_app.core.errors import InvalidDefinition, LostGround
from scheduler_app.models import JobRun
from scheduler_app.models.ids import new_id
from scheduler_app.store.term import database_time
from scheduler_app.worker.task import InvalidArguments
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


# What is refused

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a task id that is no UUID": ({"task_id": "order-17"}, "task_id"),
    "an empty task id": ({"task_id": ""}, "task_id"),
    "an unknown queue": ({"queue": "nowhere"}, "queue"),
    "a queue that is a number": ({"queue": 5}, "queue"),
    "a queue that is a list": ({"queue": ["default"]}, "queue"),
    "a priority of 11": ({"priority": 11}, "priority"),
    "a priority of 10": ({"priority": 10}, "priority"),
    "a negative priority": ({"priority": -1}, "priority"),
    "a priority in words": ({"priority": "high"}, "priority"),
    "half a priority": ({"priority": 4.5}, "priority"),
    "a time limit of zero": ({"time_limit": 0}, "time_limit"),
    "a negative time limit": ({"time_limit": -1}, "time_limit"),
    "a time limit in words": ({"time_limit": "long"}, "time_limit"),
    "a time limit that no column holds": ({"time_limit": 2**31}, "time_limit"),
    "no attempts": ({"max_attempts": 0}, "max_attempts"),
    "attempts in words": ({"max_attempts": "many"}, "max_attempts"),
    "attempts that no column holds": ({"max_attempts": 2**31}, "max_attempts"),
    "a countdown in words": ({"countdown": "soon"}, "countdown"),
    "a countdown that is true": ({"countdown": True}, "countdown"),
    "a countdown that is not a number": ({"countdown": float("nan")}, "countdown"),
    "an endless countdown": ({"countdown": float("inf")}, "countdown"),
    "a countdown past the end of time": ({"countdown": 1e18}, "countdown"),
    "an eta in words": ({"eta": "tomorrow"}, "eta"),
    "an eta that is a number": ({"eta": 5}, "eta"),
    "expires in words": ({"expires": "soon"}, "expires"),
    "expires that is true": ({"expires": True}, "expires"),
    "expires that is not a number": ({"expires": float("nan")}, "expires"),
    "expires past the end of time": ({"expires": 1e18}, "expires"),
    "a request key that is a number": ({"request_key": 5}, "request_key"),
    "a request key that no column holds": ({"request_key": "k" * 256}, "request_key"),
    "a request key with a NUL character": ({"request_key": "a\x00b"}, "request_key"),
    "a concurrency key that no column holds": ({"concurrency_key": "k" * 256}, "concurrency_key"),
    "an ordering key that is nothing": ({"ordering_key": None}, "ordering_key"),
    "arguments that are text": ({"args": "12"}, "args"),
    "arguments that are a number": ({"args": 5}, "args"),
    "keyword arguments that are a list": ({"kwargs": ["x"]}, "payload"),
    "keyword arguments whose names are numbers": ({"kwargs": {1: 2}}, "payload"),
    "a link that is text": ({"link": "add"}, "link"),
    "a link that is no signature": ({"link": [{"no": "task"}]}, "link"),
    "an error link that is a function": ({"link_error": print}, "link_error"),
}


@pytest.mark.parametrize(("given", "field"), BAD.values(), ids=BAD.keys())
def test_bad_options_are_refused_by_name(broker: FakeBroker, given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidDefinition, match=f"^{field}: ") as refused:
        anything.apply_async(**given)
    assert refused.value.field == field
    assert runs() == published(broker) == set()


def _endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def _deep() -> list[Any]:
    return json.loads("[" * 300 + "]" * 300)


UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "an object": (object, "JSON"),
    "a set": (lambda: {1}, "JSON"),
    "not a number": (lambda: float("nan"), "JSON"),
    "a value that holds itself": (_endless, "JSON"),
    "a NUL character": (lambda: "a\x00b", "NUL"),
    "a lone surrogate": (lambda: "\ud800", "surrogate"),
    "more than 256 KB": (lambda: "x" * 256 * 1024, "the limit is 262144"),
    "deep nesting": (_deep, "deeper than 200"),
}


@pytest.mark.parametrize(("value", "reason"), UNFIT.values(), ids=UNFIT.keys())
@pytest.mark.parametrize("field", ["args", "payload"])
def test_arguments_that_cannot_be_stored_are_refused_by_field(
    field: str, value: Callable[[], Any], reason: str
) -> None:
    given = {"args": (value(),)} if field == "args" else {"kwargs": {"x": value()}}
    with pytest.raises(InvalidDefinition, match=f"^{field}: .*{reason}") as refused:
        anything.apply_async(**given)
    assert refused.value.field == field
    assert runs() == set()


def test_arguments_of_almost_256_kb_are_taken() -> None:
    anything.delay("x" * (256 * 1024 - 10))
    assert len(JobRun.objects.get().args[0]) == 256 * 1024 - 10


@pytest.mark.parametrize(
    "call",
    [
        add.delay,
        lambda: add.delay(1, 2, 3),
        lambda: add.delay(1, z=2),
        lambda: add.delay(1, x=2),
        lambda: add.apply_async(kwargs={"y": 1}),
        lambda: add.s().delay(),
    ],
    ids=["too few", "too many", "an unknown name", "one twice", "one missing", "from a signature"],
)
def test_arguments_that_cannot_call_the_task_are_a_type_error(call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidArguments, match=r"^payload: does not fit .*add\(x, y=0\)") as refused:
        call()
    assert isinstance(refused.value, TypeError)
    assert runs() == set()


CHORDS: dict[str, Callable[[], Any]] = {
    "a chord": lambda: chord([add.s(1), add.s(2)], anything.s()).delay(),
    "a chord of one": lambda: chord([add.s(1)])(anything.s()),
    "a group in the middle of a chain": lambda: chain(add.s(1), group(add.s(1), add.s(2)), anything.s()).delay(),
    "a group at the head of a chain": lambda: chain(group(add.s(1), add.s(2)), anything.s()).delay(),
    "a chord as a link": lambda: add.apply_async((1,), link=chord([add.s(1), add.s(2)], anything.s())),
    "a chord deep in a link": lambda: add.apply_async((1,), link=group(chain(add.s(1), chord([add.s(1)], add.s(1))))),
}


@pytest.mark.parametrize("call", CHORDS.values(), ids=CHORDS.keys())
def test_chords_are_refused_with_the_reason(broker: FakeBroker, call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidDefinition, match=r"^canvas: chords are not supported by durable tasks"):
        call()
    assert runs() == published(broker) == set()


def test_replace_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidDefinition, match=r"^replace: .*not supported by durable tasks: call a chain"):
        add.replace(add.s(1, 2))


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
