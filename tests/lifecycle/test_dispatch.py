"""Dispatching: what is marked, published, put back, published again. On the PostgreSQL broker and on RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kombu import Connection

from scheduler_app.broker.publisher import Publisher
from scheduler_app.conf import conf
from scheduler_app.lifecycle import dispatch as module
from scheduler_app.lifecycle.dispatch import dispatch, redispatch
from scheduler_app.models import JobRun
from scheduler_app.store import dispatch as store
from tests.support.beats import second_ago
from tests.support.brokers import FakeBroker, a_publisher, announced
from tests.support.definitions import a_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["postgres", "rabbitmq"])
def beside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    with a_publisher(request.param) as (publisher, connection):
        monkeypatch.setattr(module, "publisher", lambda: publisher)
        yield connection


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    found = FakeBroker()
    monkeypatch.setattr(module, "publisher", lambda: found)
    return found


def with_conf(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    changed = replace(conf(), **values)
    monkeypatch.setattr(module, "conf", lambda: changed)


def test_a_ready_run_is_marked_and_its_hint_is_in_its_queue(beside: Connection) -> None:
    run = a_run(queue="fast", attempts=2)
    done = dispatch()
    assert (done.published, done.refused, done.reached) == (1, 0, True)
    run.refresh_from_db()
    assert run.dispatched_at is not None
    assert run.dispatches == 1
    message = beside.channel().basic_get("fast", no_ack=True)
    assert message.headers["id"] == str(run.id)
    assert message.headers["everyslot_attempt"] == 2
    assert dispatch().published == 0


@pytest.mark.parametrize(
    "columns",
    [
        {"status": "running"},
        {"status": "succeeded"},
        {"held_by": UUID(int=1)},
        {"dispatched_at": second_ago},
        {"run_after": lambda: second_ago(-60)},
    ],
    ids=["running", "final", "held", "published", "not yet"],
)
def test_only_what_is_ready_is_published(broker: FakeBroker, columns: dict[str, Any]) -> None:
    a_run(**{key: value() if callable(value) else value for key, value in columns.items()})
    assert dispatch().published == 0
    assert broker.published == []


def test_the_highest_priority_and_then_the_longest_wait_comes_first(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_conf(monkeypatch, dispatch_batch=2)
    late = a_run(priority=4, run_after=second_ago(10))
    later = a_run(priority=4, run_after=second_ago(5))
    urgent = a_run(priority=9, run_after=second_ago(1))
    low = a_run(priority=0, run_after=second_ago(900))
    order = []
    while dispatch().published:
        order.append({hint.run_id for hint in broker.published})
        broker.published.clear()
    assert order == [{urgent.id, late.id}, {later.id, low.id}]


def test_a_batch_is_published_in_the_order_of_its_claim_to_run(broker: FakeBroker) -> None:
    at = second_ago(900)
    runs = [a_run(priority=n * 7 % 10, run_after=at + timedelta(seconds=n * 13 % 50)) for n in range(200)]
    assert dispatch().published == len(runs)
    wanted = sorted(runs, key=lambda run: (-run.priority, run.run_after, str(run.id)))
    assert [hint.run_id for hint in broker.published] == [run.id for run in wanted]


def test_runs_that_wait_for_their_time_do_not_hide_ready_ones(broker: FakeBroker) -> None:
    for _ in range(5):
        a_run(priority=9, run_after=second_ago(-60))
    ready = a_run(priority=0)
    done = dispatch()
    assert [hint.run_id for hint in broker.published] == [ready.id]
    assert done.published == 1
    done = dispatch()
    assert done.wait is not None
    assert 50 < done.wait <= 61


def test_at_most_the_window_is_published_but_unclaimed(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with_conf(monkeypatch, dispatch_window=3)
    runs = [a_run() for _ in range(5)]
    assert dispatch().published == 3
    done = dispatch()
    assert (done.published, done.full) == (0, True)
    JobRun.objects.filter(id=broker.published[0].run_id).update(
        status="cancelled", finished_at=second_ago(), reason="requested"
    )
    assert dispatch().published == 1
    assert len({hint.run_id for hint in broker.published}) == 4 < len(runs)


def test_a_full_queue_does_not_hold_up_another(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with_conf(monkeypatch, dispatch_window=1)
    a_run(queue="slow", dispatched_at=second_ago())
    a_run(queue="slow")
    free = a_run(queue="fast")
    assert dispatch().published == 1
    assert [hint.run_id for hint in broker.published] == [free.id]


def test_a_run_for_a_queue_that_nobody_declared_waits_longer_each_time_and_stops_no_other(beside: Connection) -> None:
    lost, fine = a_run(queue="nowhere"), a_run(queue="fast")
    with announced() as events:
        done = dispatch()
    assert (done.published, done.refused, done.reached) == (1, 1, True)
    assert ("run.unpublished", {"runs": [lost.id], "refused": True}) in events
    lost.refresh_from_db()
    fine.refresh_from_db()
    assert (lost.dispatched_at, lost.dispatches) == (None, 1)
    assert lost.run_after > second_ago(0)
    assert fine.dispatched_at is not None
    first = lost.run_after
    JobRun.objects.filter(id=lost.id).update(run_after=second_ago())
    dispatch()
    lost.refresh_from_db()
    assert lost.run_after > first, "two seconds now instead of one"


def test_a_broker_that_is_away_leaves_the_runs_as_they_were(broker: FakeBroker) -> None:
    broker.answered = False
    run = a_run()
    before = run.run_after
    done = dispatch()
    assert (done.published, done.reached) == (0, False)
    run.refresh_from_db()
    assert (run.dispatched_at, run.dispatches, run.run_after) == (None, 0, before)


def test_a_mark_that_is_another_by_now_is_not_taken_off() -> None:
    run = a_run()
    (marked,) = store.mark_ready({"default": 10})
    JobRun.objects.filter(id=run.id).update(dispatched_at=second_ago(-1))
    assert store.put_back([marked], refused=False) == 0
    JobRun.objects.filter(id=run.id).update(dispatched_at=marked.mark)
    assert store.put_back([marked], refused=False) == 1


@pytest.mark.parametrize(
    ("dispatches", "age", "again"), [(1, 59, False), (1, 61, True), (2, 100, False), (2, 121, True), (9, 901, True)]
)
def test_a_silent_run_is_published_again_after_twice_the_patience_each_time(
    broker: FakeBroker, dispatches: int, age: float, again: bool
) -> None:
    run = a_run(dispatched_at=second_ago(age), dispatches=dispatches)
    assert redispatch() == int(again)
    run.refresh_from_db()
    assert run.dispatches == dispatches + again


def test_a_run_that_merely_waits_in_a_long_queue_is_not_published_twice(broker: FakeBroker) -> None:
    broker.messages = 3
    runs = [a_run(dispatched_at=second_ago(600 - n), dispatches=1) for n in range(5)]
    assert redispatch() == 2, "five are unclaimed, three are in the queue"
    assert {hint.run_id for hint in broker.published} == {runs[0].id, runs[1].id}
    broker.messages = 5
    assert redispatch() == 0


def test_the_broker_tells_what_it_holds(beside: Connection) -> None:
    kept = [a_run() for _ in range(3)]
    dispatch()
    JobRun.objects.update(dispatched_at=second_ago(100))
    assert redispatch() == 0
    beside.channel().basic_get("default", no_ack=True)
    assert redispatch() == 1
    assert JobRun.objects.filter(dispatches=2).count() == 1
    assert len(kept) == 3


def test_the_process_that_died_between_mark_and_publish_is_made_good(beside: Connection) -> None:
    run = a_run()
    store.mark_ready({"default": 10})
    assert beside.channel().basic_get("default", no_ack=True) is None
    JobRun.objects.update(dispatched_at=second_ago(0) - timedelta(seconds=conf().dispatch_timeout + 1))
    assert redispatch() == 1
    assert beside.channel().basic_get("default", no_ack=True).headers["id"] == str(run.id)


def test_nothing_ready_asks_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "publisher", lambda: Publisher("amqp://nobody@127.0.0.1:1//"))
    assert (dispatch().published, redispatch()) == (0, 0)
