"""Claims, finishes and cancels that meet on one run, from sessions of their own: one wins, and the row says which."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from scheduler_app.core.outcome import Ending, Way
from scheduler_app.core.states import Status
from scheduler_app.lifecycle.cancel import cancel
from scheduler_app.lifecycle.claim import Written, write
from scheduler_app.models import Attempt, DeadLetter, JobRun
from scheduler_app.models.ids import new_id
from scheduler_app.store.decide import Cancels
from scheduler_app.store.work import Finish, Wanted
from scheduler_app.worker.ledger import Delivery, Ledger
from tests.support.beats import second_ago
from tests.support.definitions import a_job, a_run, known_tasks, options
from tests.support.programs import wait_until

pytestmark = [pytest.mark.race, pytest.mark.django_db(transaction=True)]

RETURNED = Ending(Way.RETURNED, Status.SUCCEEDED, result='"done"')
AGAIN = Ending(Way.RETRY, Status.QUEUED, error="boom")
DIED = Ending(Way.FAILED, Status.DEAD, "failed", error="boom")
LOST = Ending(Way.LOST, Status.QUEUED, error="attempt lost")
STOPPED = Ending(Way.CANCELLED, Status.CANCELLED, "requested")
ONE, OTHER = new_id(), new_id()  # two workers
FREE = {"trigger": "code"}
one_session = pytest.mark.django_db(transaction=False)
"""For what one session shows: rolled back instead of flushed, which is much faster."""


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    with known_tasks(options()):
        yield


def claim(run: JobRun, worker: UUID = ONE, attempt: int = 0) -> bool:
    """Whether the worker got the run at this number of attempts."""
    return run.id in write(worker, [], [Wanted(run.id, attempt)]).claimed


def finish(run: JobRun, ending: Ending, worker: UUID = ONE, attempt: int = 1) -> bool:
    """Whether the ending of this attempt took effect."""
    return run.id in write(worker, [Finish(run.id, attempt, worker, ending)], []).done


def running(**columns: Any) -> JobRun:
    """A run in its first attempt under worker ONE."""
    return a_run(status="running", locked_by=ONE, **FREE | columns)


def never(*args: Any) -> Any:
    raise AssertionError("nothing starts here")


def sessions_that_wait() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


def start(work: Callable[[], Any], results: dict[int, Any], place: int) -> threading.Thread:
    """Run the work in a thread with a connection of its own."""

    def one() -> None:
        try:
            results[place] = work()
        except Exception as error:
            results[place] = error
        finally:
            connection.close()

    thread = threading.Thread(target=one)
    thread.start()
    return thread


def meet(run: JobRun, *works: Callable[[], Any]) -> list[Any]:
    """All works queue up behind one lock on the run, in this order, and then go on at once; their results."""
    results: dict[int, Any] = {}
    threads = []
    with transaction.atomic():
        JobRun.objects.select_for_update().get(pk=run.pk)
        for place, work in enumerate(works):
            threads.append(start(work, results, place))
            wait_until(lambda place=place: sessions_that_wait() == place + 1, what="the next to wait for the run")  # type: ignore[misc]
    for thread in threads:
        thread.join(60)
    return [results[place] for place in range(len(works))]


def test_of_two_workers_that_claim_one_run_at_once_one_wins() -> None:
    run = a_run(**FREE)
    got = meet(run, lambda: claim(run, ONE), lambda: claim(run, OTHER))
    assert sorted(got) == [False, True]
    run.refresh_from_db()
    assert (run.status, run.attempts, run.locked_by) == ("running", 1, [ONE, OTHER][got.index(True)])


def test_two_workers_that_claim_the_same_batch_in_opposite_orders_share_it() -> None:
    """Rows are locked in the order of their ids, so nobody waits in a circle."""
    runs = [a_run(scheduled_for=second_ago(number), **FREE) for number in range(40)]
    wanted = [Wanted(run.id, 0) for run in runs]
    middle = runs[20]
    one, other = meet(middle, lambda: write(ONE, [], wanted), lambda: write(OTHER, [], wanted[::-1]))
    assert isinstance(one, Written), one
    assert isinstance(other, Written), other
    assert one.claimed.keys().isdisjoint(other.claimed)
    assert one.claimed.keys() | other.claimed.keys() == {run.id for run in runs}
    assert set(JobRun.objects.values_list("attempts", flat=True)) == {1}


@one_session
@pytest.mark.parametrize("named", [0, 1, 3, 2**31 - 2])
def test_a_claim_at_another_attempt_than_the_rows_is_refused(named: int) -> None:
    run = a_run(attempts=2, **FREE)
    assert not claim(run, attempt=named)
    assert claim(run, attempt=2)
    run.refresh_from_db()
    assert run.attempts == 3


def test_a_late_hint_that_meets_the_current_one_claims_nothing() -> None:
    """And it does not even wait for the other: a backlog of doubled hints holds nobody up."""
    run = a_run(attempts=1, **FREE)
    results: dict[int, Any] = {}
    with transaction.atomic():
        assert claim(run, OTHER, attempt=1)
        start(lambda: claim(run, ONE, attempt=0), results, 0).join(20)
        assert results == {0: False}
    run.refresh_from_db()
    assert (run.attempts, run.locked_by) == (2, OTHER)


@one_session
@pytest.mark.parametrize("named", [[1, 0], [0, 1], [0, 1, 0, 1], [1, 2]], ids=str)
def test_a_stale_hint_beside_the_current_one_takes_nothing_from_it(named: list[int]) -> None:
    """In one batch of a ledger; the current hint is acknowledged, so it would not come again for a minute."""
    run = a_run(attempts=1, **FREE)
    ledger = Ledger("one@test", lambda: 4, lambda request: None, lambda call: None)
    ledger.open_for(ONE)
    deliveries = [Delivery(Wanted(run.id, number), run.task, never, lambda: None) for number in named]
    worker, written = ledger._persist([], deliveries)
    assert (worker, set(written.claimed)) == (ONE, {run.id})
    run.refresh_from_db()
    assert run.attempts == 2


def test_a_hint_that_waited_while_the_run_was_tried_and_given_back_is_refused() -> None:
    """The second session read the row at attempt 0; what counts is the row as the lock finds it."""
    run = a_run(**FREE)

    def whole_attempt() -> bool:
        return claim(run, ONE) and finish(run, AGAIN, ONE)

    with transaction.atomic():
        JobRun.objects.select_for_update().get(pk=run.pk)
        results: dict[int, Any] = {}
        late = start(lambda: claim(run, OTHER, attempt=0), results, 0)
        wait_until(lambda: sessions_that_wait() == 1, what="the late claim to wait")
        assert whole_attempt()
    late.join(60)
    assert results == {0: False}
    run.refresh_from_db()
    assert (run.status, run.attempts) == ("queued", 1)


@one_session
@pytest.mark.parametrize("second", [OTHER, ONE], ids=["another worker", "the same worker"])
def test_a_finish_by_an_older_attempt_after_a_newer_claim_is_void(second: UUID) -> None:
    run = running()
    assert finish(run, LOST)
    assert claim(run, second, attempt=1)
    for late in (RETURNED, AGAIN, DIED):
        assert not finish(run, late, ONE, attempt=1)
    run.refresh_from_db()
    assert (run.status, run.attempts, run.locked_by, run.result) == ("running", 2, second, None)
    assert finish(run, RETURNED, second, attempt=2)
    assert list(Attempt.objects.values_list("number", "outcome")) == [(1, "lost"), (2, "returned")]
    assert not DeadLetter.objects.exists()


def test_a_finish_that_meets_the_end_by_loss_is_void_if_it_comes_second_and_counts_if_it_comes_first() -> None:
    first, second = running(), running(scheduled_for=second_ago(1))
    assert meet(first, lambda: finish(first, LOST), lambda: finish(first, RETURNED)) == [True, False]
    assert meet(second, lambda: finish(second, RETURNED), lambda: finish(second, LOST)) == [True, False]
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.status, second.status) == ("queued", "succeeded")


def test_finishing_twice_is_a_no_op() -> None:
    for number, ending in enumerate((RETURNED, DIED, AGAIN, STOPPED)):
        run = running(scheduled_for=second_ago(number))
        both = meet(run, *[lambda run=run, ending=ending: finish(run, ending)] * 2)  # type: ignore[misc]
        assert sorted(both) == [False, True], ending.way
        before = JobRun.objects.values().get(pk=run.pk)
        assert not finish(run, ending)
        assert not finish(run, DIED)
        assert JobRun.objects.values().get(pk=run.pk) == before
        assert Attempt.objects.filter(run_id=run.pk).count() == (0 if ending is RETURNED else 1)
        assert DeadLetter.objects.filter(run_id=run.pk).count() == (1 if ending is DIED else 0)


@one_session
def test_a_finish_twice_in_one_batch_is_written_once() -> None:
    run = running()
    twice = [Finish(run.id, 1, ONE, DIED)] * 2
    assert set(write(ONE, twice, []).done) == {run.id}
    assert (Attempt.objects.count(), DeadLetter.objects.count()) == (1, 1)


@one_session
@pytest.mark.parametrize("worker", [OTHER, UUID(int=0)], ids=["another worker", "no worker"])
def test_a_finish_under_another_name_is_void(worker: UUID) -> None:
    run = running()
    assert not finish(run, RETURNED, worker)
    run.refresh_from_db()
    assert run.status == "running"


CANCELLED = ("cancelled", "requested")
MEETINGS: list[tuple[Ending, tuple[str, str]]] = [
    (RETURNED, ("succeeded", "")),  # it returned before it looked
    (DIED, ("dead", "failed")),
    (AGAIN, CANCELLED),  # no further attempt of what nobody wants
    (STOPPED, CANCELLED),
]


@pytest.mark.parametrize("first", ["finish", "cancel"])
def test_a_finish_and_a_cancel_at_once_have_one_winner(first: str) -> None:
    for number, (ending, end) in enumerate(MEETINGS):
        run = running(scheduled_for=second_ago(number))
        works: list[Callable[[], Any]] = [
            lambda run=run, ending=ending: finish(run, ending),  # type: ignore[misc]
            lambda run=run: cancel([run.id], "ann"),  # type: ignore[misc]
        ]
        if first == "finish":
            finished, cancelled = meet(run, *works)
        else:
            cancelled, finished = meet(run, *works[::-1])
        run.refresh_from_db()
        assert (run.status, run.reason) == end, ending.way
        assert run.finished_at is not None
        assert finished is True
        assert isinstance(cancelled, Cancels), cancelled
        asked = [run.id] if first == "cancel" else []
        ended = [run.id] if first == "finish" and ending is AGAIN else []
        assert (cancelled.ended, cancelled.asked) == (ended, asked), ending.way
    assert DeadLetter.objects.count() == 1


def test_a_claim_and_a_cancel_at_once_have_one_winner() -> None:
    first, second = a_run(**FREE), a_run(scheduled_for=second_ago(1), **FREE)
    got, cancelled = meet(first, lambda: claim(first), lambda: cancel([first.id], "ann"))
    assert (got, cancelled.ended, cancelled.asked) == (True, [], [first.id])
    cancelled, got = meet(second, lambda: cancel([second.id], "ann"), lambda: claim(second))
    assert (got, cancelled.ended, cancelled.asked) == (False, [second.id], [])
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.status, second.status, second.attempts) == ("running", "cancelled", 0)


@one_session
@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"held_by": new_id()}, id="held by another"),
        pytest.param({"cancel_requested_at": second_ago}, id="asked to cancel"),
        pytest.param({"attempts": 5, "max_attempts": 5}, id="without an attempt left"),
        pytest.param({"status": "running", "locked_by": OTHER}, id="running elsewhere"),
        pytest.param({"status": "succeeded"}, id="succeeded"),
        pytest.param({"status": "dead"}, id="dead"),
        pytest.param({"status": "cancelled"}, id="cancelled"),
        pytest.param({"status": "skipped"}, id="skipped"),
    ],
)
def test_a_run_that_is_not_free_to_start_is_refused(columns: dict[str, Any]) -> None:
    run = a_run(**FREE | {name: value() if callable(value) else value for name, value in columns.items()})
    before = JobRun.objects.values().get(pk=run.pk)
    assert not claim(run, ONE, attempt=run.attempts)
    assert JobRun.objects.values().get(pk=run.pk) == before


@one_session
def test_a_run_before_its_time_is_refused_and_claimed_once_it_has_come() -> None:
    run = a_run(run_after=second_ago(-60), **FREE)
    assert not claim(run)
    JobRun.objects.filter(pk=run.pk).update(run_after=second_ago())
    assert claim(run)


def test_a_run_past_its_starting_deadline_is_skipped_once_with_the_reason() -> None:
    job = a_job(starting_deadline=10)
    run = a_run(job, scheduled_for=second_ago(60))
    both = meet(run, *(lambda worker=worker: write(worker, [], [Wanted(run.id, 0)]) for worker in (ONE, OTHER)))  # type: ignore[misc]
    assert sorted(len(each.skipped) for each in both) == [0, 1]
    assert not any(each.claimed for each in both)
    run.refresh_from_db()
    assert (run.status, run.reason, run.attempts, run.locked_by) == ("skipped", "deadline", 0, None)
    assert run.finished_at is not None


@one_session
@pytest.mark.parametrize(
    ("columns", "status"),
    [
        pytest.param({"scheduled_for": 60}, "skipped", id="a slot past the deadline"),
        pytest.param({"scheduled_for": 5}, "running", id="a slot within it"),
        pytest.param({"scheduled_for": 60, "attempts": 1}, "running", id="a retry, which began in time"),
        pytest.param({"scheduled_for": 60, "trigger": "manual"}, "running", id="started by hand"),
        pytest.param({"scheduled_for": 5, "expires_at": 1}, "skipped", id="expired"),
        pytest.param({"scheduled_for": 5, "expires_at": 1, "attempts": 1}, "running", id="expired after it began"),
    ],
)
def test_only_a_run_that_never_began_is_too_late(columns: dict[str, Any], status: str) -> None:
    instants = {name: second_ago(columns[name]) for name in ("scheduled_for", "expires_at") if name in columns}
    run = a_run(a_job(starting_deadline=30), **columns | instants)
    write(ONE, [], [Wanted(run.id, run.attempts)])
    run.refresh_from_db()
    assert run.status == status


@one_session
def test_a_finish_and_a_claim_of_one_batch_commit_together() -> None:
    """The next run of a key is claimed in the very batch that ends the one before it."""
    run = running(concurrency_key="one")
    following = a_run(scheduled_for=second_ago(1), concurrency_key="one", **FREE)
    written = write(ONE, [Finish(run.id, 1, ONE, RETURNED)], [Wanted(following.id, 0)])
    assert set(written.done) == {run.id}
    assert set(written.claimed) == {following.id}


@one_session
def test_a_lease_is_given_with_the_claim_by_the_databases_clock() -> None:
    run = a_run(**FREE)
    before = second_ago()
    assert claim(run)
    run.refresh_from_db()
    assert run.locked_until - run.started_at > timedelta(seconds=0)
    assert run.started_at >= before
