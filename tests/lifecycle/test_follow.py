"""What follows a run that ended: inserted with its end, or dead with the reason; a chain never ends without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DataError, transaction

from scheduler_app.core.limits import PAYLOAD_BYTES
from scheduler_app.core.outcome import Ending, Way
from scheduler_app.core.states import Status
from scheduler_app.core.text import is_note, note
from scheduler_app.lifecycle.claim import write, write_apart
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
