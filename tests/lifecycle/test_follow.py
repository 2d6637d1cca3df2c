"""What follows a run that ended: inserted with its end, or dead with the reason; a chain never ends without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler_app.core.limits import PAYLOAD_BYTES
from scheduler_app.core.outcome import Ending, Way
from scheduler_app.core.states import Status
from scheduler_app.core.text import note
from scheduler_app.lifecycle.claim import unstorable, write
from scheduler_app.models import DeadLetter, JobRun
from scheduler_app.models.ids import new_id
from scheduler_app.store.work import Finish
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


def test_what_postgres_does_not_take_is_found_among_its_neighbours() -> None:
    good = ['"a"', "[1]", "null"]
    bad = ['"\\u0000"', "{", "1e999999"]
    assert unstorable([*good, *bad]) == frozenset(bad)
