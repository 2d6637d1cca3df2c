"""What follows a run that ended: inserted with its end, or dead with the reason; a chain never ends without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DataError, transaction

from scheduler_app.core.canvas import declare
from scheduler_app.core.limits import PAYLOAD_BYTES
from scheduler_app.core.outcome import Ending, Way
from scheduler_app.core.retry import RetryOverrides
from scheduler_app.core.states import Status
from scheduler_app.core.text import is_note, note
from scheduler_app.lifecycle.claim import write, write_apart
from scheduler_app.lifecycle.follow import durable_note
from scheduler_app.models import DeadLetter, JobRun
from scheduler_app.models.ids import new_id
from scheduler_app.store.work import Finish, Wanted
from tests.support.definitions import a_run, known_tasks, options

pytestmark = pytest.mark.django_db
WORKER = new_id()
NEXT = {"task": "tests.report", "args": [], "kwargs": {}, "options": {}, "subtask_type": None, "immutable": False}


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options()):
        yield


def followed_by(result: str, **signature: Any) -> JobRun:
    """End a run with a result (JSON text) that one more task follows; the run of that task."""
    run = a_run(status="running", locked_by=WORKER, trigger="code", canvas={"chain": [NEXT | signature]})
    write(WORKER, [Finish(run.id, 1, WORKER, Ending(Way.RETURNED, Status.SUCCEEDED, result=result))], [])
    run.refresh_from_db()
    assert run.status == "succeeded", "what follows never harms what has ended"
    return JobRun.objects.exclude(pk=run.pk).get()


def test_what_follows_is_a_queued_run_with_the_result() -> None:
    run = followed_by('"2026-11"')
    assert (run.status, run.args, run.dispatched_at) == ("queued", ["2026-11"], None)


@pytest.mark.parametrize(
    ("result", "signature", "reason"),
    [
        (json.dumps("x" * (PAYLOAD_BYTES - 3)), {}, "args"),
        ("1", {"options": {"queue": "gone"}}, "queue"),
        ("1", {"options": {"countdown": 10**30}}, "countdown"),
        ("1", {"options": {"task_id": "no uuid"}}, "UUID"),
        (json.dumps(note("too large")), {}, "could not be stored"),
    ],
    ids=["arguments too large", "queue gone", "impossible delay", "bad id", "result not stored"],
)
def test_what_cannot_follow_is_dead_with_the_reason(result: str, signature: dict[str, Any], reason: str) -> None:
    run = followed_by(result, **signature)
    assert (run.status, run.reason, run.attempts) == ("dead", "refused", 0)
    assert reason in run.last_error
    assert DeadLetter.objects.get(run_id=run.id).reason == "refused"


def test_a_task_that_takes_no_result_follows_one_that_could_not_be_stored() -> None:
    run = followed_by(json.dumps(note("too large")), immutable=True, args=["2026-11"])
    assert (run.status, run.args) == ("queued", ["2026-11"])


def test_a_value_that_postgres_refuses_costs_its_neighbours_nothing() -> None:
    bad = ['"\\u0000"', "{", "1e999999"]
    results = ['"a"', *bad, "null"]
    runs = [a_run(status="running", locked_by=WORKER, trigger="code") for _ in results]
    ends = [
        Finish(run.id, 1, WORKER, Ending(Way.RETURNED, Status.SUCCEEDED, result=result))
        for run, result in zip(runs, results, strict=True)
    ]
    waiting = a_run(trigger="code")
    with pytest.raises(DataError), transaction.atomic():
        write(WORKER, ends, [Wanted(waiting.id, 0)])
    written = write_apart(WORKER, ends, [Wanted(waiting.id, 0)], "bad value")
    assert written.done.keys() == {run.id for run in runs}
    assert written.claimed.keys() == {waiting.id}
    stored = [JobRun.objects.get(pk=run.pk).result for run in runs]
    assert (stored[0], stored[-1]) == ("a", None)
    assert all(is_note(each) and "bad value" in each["reason"] for each in stored[1:-1])


def test_a_successor_never_ends_a_run_that_was_there_under_its_id() -> None:
    innocent = a_run(trigger="code")
    options = {"task_id": str(innocent.id), "queue": "gone"}
    run = a_run(status="running", locked_by=WORKER, trigger="code", canvas={"chain": [NEXT | {"options": options}]})
    write(WORKER, [Finish(run.id, 1, WORKER, Ending(Way.RETURNED, Status.SUCCEEDED, result="1"))], [])
    innocent.refresh_from_db()
    assert innocent.status == "queued"


def test_a_successor_whose_own_queue_is_gone_is_dead_with_the_reason() -> None:
    with known_tasks(options(queue="gone")):
        run = followed_by("1")
    assert (run.status, run.reason) == ("dead", "refused")
    assert "queue" in run.last_error


@pytest.mark.parametrize(
    "canvas",
    [
        {"chain": [{"task": "celery.chain", "subtask_type": "chain"}]},
        {"chain": "tests.report"},
        {"chain": 5},
        {"link": [NEXT | {"options": "queue"}]},
        {"link": {"task": "tests.report"}},
        ["tests.report"],
        "tests.report",
    ],
)
def test_a_canvas_that_nobody_can_read_costs_the_batch_nothing(canvas: Any) -> None:
    """Refused where it enters; yesterday's code or a hand in the table may have written it."""
    garbled = a_run(status="running", locked_by=WORKER, trigger="code", canvas=canvas)
    sound = a_run(status="running", locked_by=WORKER, trigger="code", canvas={"chain": [NEXT]})
    ends = [Finish(each.id, 1, WORKER, Ending(Way.RETURNED, Status.SUCCEEDED, result="1")) for each in (garbled, sound)]
    assert write(WORKER, ends, []).done.keys() == {garbled.id, sound.id}
    assert JobRun.objects.filter(status="succeeded").count() == 2
    assert JobRun.objects.filter(status="queued", args=[1]).count() == 1


def test_the_error_links_of_a_refused_successor_follow_and_theirs_too() -> None:
    gone = {"queue": "gone"}
    last = NEXT | {"args": ["last"]}
    first = NEXT | {"options": gone | {"link_error": [NEXT | {"options": gone | {"link_error": [last]}}]}}
    run = a_run(status="running", locked_by=WORKER, trigger="code", canvas={"chain": [first]})
    write(WORKER, [Finish(run.id, 1, WORKER, Ending(Way.RETURNED, Status.SUCCEEDED, result="1"))], [])
    refused = list(JobRun.objects.filter(status="dead", reason="refused").order_by("id"))
    assert len(refused) == 2
    assert JobRun.objects.get(status="queued").args == [str(refused[1].pk), "last"]


NEW_TASK = options("tests.new", queue="slow", retry=RetryOverrides(3), time_limit=77, starting_deadline=88)


def entered(*signatures: dict[str, Any]) -> list[Any]:
    """As a caller that knows the new task writes them into the canvas."""
    with known_tasks(options(), NEW_TASK):
        return json.loads(json.dumps(declare(signatures, durable_note)))


@pytest.mark.parametrize("where", ["chain", "link", "a group", "a chain", "the link of a link"])
def test_a_durable_task_of_which_this_worker_has_not_heard_follows_as_its_caller_knew_it(where: str) -> None:
    new = {"task": "tests.new", "args": ["x"], "kwargs": {}, "options": {}, "immutable": True}
    within: dict[str, dict[str, Any]] = {
        "chain": {"chain": entered(new)},
        "link": {"link": entered(new)},
        "a group": {"link": entered({"task": "celery.group", "subtask_type": "group", "kwargs": {"tasks": [new]}})},
        "a chain": {"link": entered({"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": [new]}})},
        "the link of a link": {"link": entered(NEXT | {"options": {"link": new}})},
    }
    a_run(trigger="code", canvas=within[where])
    while not JobRun.objects.filter(task="tests.new").exists():
        run = JobRun.objects.get(status="queued")
        assert write(WORKER, [], [Wanted(run.pk, 0)]).claimed
        write(WORKER, [Finish(run.pk, 1, WORKER, Ending(Way.RETURNED, Status.SUCCEEDED, result="1"))], [])
    follower = JobRun.objects.get(task="tests.new")
    assert (follower.status, follower.args, follower.queue) == ("queued", ["x"], "slow")
    assert (follower.max_attempts, follower.time_limit) == (3, 77)
    assert follower.expires_at is not None
    assert (follower.expires_at - follower.run_after).total_seconds() == pytest.approx(88, abs=0.001)


def test_a_worker_that_knows_the_task_goes_by_what_it_knows() -> None:
    with known_tasks(options("tests.new", time_limit=5)):
        assert followed_by("1", **entered({"task": "tests.new"})[0]).time_limit == 5


def test_an_ordinary_task_is_not_taken_for_a_durable_one_and_no_note_is_believed() -> None:
    forged = NEXT | {"task": "tests.ordinary", "durable": {"queue": "slow"}}
    assert "durable" not in entered(forged)[0]
