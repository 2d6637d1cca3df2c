"""docs/explanation/crash-table.md, row by row: a real process is killed right there, others repair what it left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from scheduler_app.broker.publisher import publisher
from scheduler_app.broker.topology import DEAD_QUEUE
from scheduler_app.lifecycle.trigger import run_now
from scheduler_app.models import Attempt, DeadLetter, Job, JobRun, SkippedRange
from tests.support.beats import due_jobs, second_ago
from tests.support.brokers import broker_url, database_url
from tests.support.crash_points import trap
from tests.support.endings import MODULES, breaking
from tests.support.invariants import unsettled
from tests.support.programs import ROOT, Program, Programs, wait_until
from tests.support.workload import lines, noted

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

on_postgres = pytest.mark.parametrize("broker", ["postgres"], indirect=True)
on_both = pytest.mark.parametrize(
    "broker", ["postgres", pytest.param("rabbitmq", marks=pytest.mark.proof)], indirect=True
)
# Repairs come fast: silence is short, loops are quick, messages of the dead come again soon.
FAST = MODULES | {
    "EVERYSLOT_DISPATCH_TIMEOUT": "2",
    "EVERYSLOT_LOOP": "0.2",
    "EVERYSLOT_TERM": "2",
    "EVERYSLOT_LEASE": "3",
    "EVERYSLOT_HEARTBEAT": "1",
}
YESTERDAY = {"EVERYSLOT_TASK_MODULES": "tasks"}  # a worker that does not know tests/support/workload.py
JOBS, SLOTS = 2, 3
RUNS = JOBS * SLOTS


@dataclass(frozen=True)
class Killed:
    """A point, and what is left behind by a death there."""

    point: dict[str, Any]
    left: tuple[Any, ...]


@pytest.fixture
def armed(tmp_path: Path) -> Path:
    """The file that is there until the trap has sprung."""
    made = tmp_path / "armed"
    made.touch()
    return made


@pytest.fixture(autouse=True)
def end_at_once(run: Programs) -> Iterator[None]:
    """Clean stops are tested elsewhere; here they would take longer than the rest."""
    yield
    for each in run.made:
        each.kill(signal.SIGKILL)


def dies(program: Program, armed: Path) -> None:
    """Wait until the trap has killed it."""
    assert program.wait(60) == -signal.SIGKILL, program.log
    assert not armed.exists()


def messages(broker: str, queue: str = "default") -> int | None:
    """What a queue holds: with RabbitMQ what waits in it, with PostgreSQL also what a consumer has."""
    if broker != "postgres":
        return publisher().depth(queue)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM everyslot_transport_message WHERE queue = %s", [queue])
        return int(cursor.fetchone()[0])


def settles(broker: str) -> None:
    """Every run has ended, and every message is used up: those that came again too."""
    wait_until(lambda: not JobRun.objects.filter(finished_at=None).exists(), 40, "every run to end")
    wait_until(lambda: not messages(broker) and not messages(broker, DEAD_QUEUE), 40, "every message to be used up")
    assert unsettled() == []


def ends() -> list[tuple[str, int]]:
    """Status and attempts of every run, in the order of recording."""
    return list(JobRun.objects.order_by("seq").values_list("status", "attempts"))


def outcomes() -> list[tuple[int, str]]:
    return list(Attempt.objects.order_by("run_id", "number").values_list("number", "outcome"))


# What is left: runs, marked runs, messages.
BEATS = {
    "recording, before commit": Killed(
        {"function": "scheduler_app.lifecycle.record:write_batch", "when": "lambda written, *_: written.inserted"},
        (0, 0, 0),
    ),
    # Its dispatcher is another thread: this is the first that it would do.
    "recording committed": Killed(
        {"function": "scheduler_app.store.dispatch:mark_ready", "before": True}, (RUNS, 0, 0)
    ),
    "dispatch committed, before publishing": Killed(
        {
            "function": "scheduler_app.lifecycle.dispatch:_publish",
            "before": True,
            "when": "lambda marked, _: marked",
        },
        (RUNS, RUNS, 0),
    ),
    "publishing a part of a batch": Killed(
        {
            "function": "scheduler_app.lifecycle.dispatch:_publish",
            "when": "lambda _, marked, __: marked",
            "giving": "lambda marked, event: (marked[:1], event)",
        },
        (RUNS, RUNS, 1),
    ),
}


@pytest.mark.parametrize(
    ("name", "broker"),
    [
        *((name, "postgres") for name in BEATS),
        *(pytest.param(name, "rabbitmq", marks=pytest.mark.proof) for name in list(BEATS)[2:]),
    ],
    indirect=["broker"],
)
def test_what_a_beat_leaves_behind_that_is_killed_right_after(
    name: str, run: Programs, broker: str, notes: Path, armed: Path
) -> None:
    first = second_ago(SLOTS)
    due_jobs(
        JOBS, first, schedule="@every 1s", max_runs=SLOTS, task=noted.name, payload={"path": str(notes)}, time_limit=60
    )
    dies(run.beat(before=trap(armed=armed, **BEATS[name].point), **FAST), armed)
    marked = JobRun.objects.exclude(dispatched_at=None)
    assert (JobRun.objects.count(), marked.count(), messages(broker)) == BEATS[name].left

    run.beat("next beat", **FAST)
    run.worker(**FAST)
    wait_until(lambda: JobRun.objects.count() == RUNS, 40, "every slot to be recorded")
    settles(broker)
    slots = [first + timedelta(seconds=n) for n in range(SLOTS)]
    planned = set(product(Job.objects.values_list("pk", flat=True), slots))
    assert set(JobRun.objects.values_list("job_id", "scheduled_for")) == planned
    assert not SkippedRange.objects.exists()
    assert ends() == [("succeeded", 1)] * RUNS
    assert lines(notes) == ["done 1"] * RUNS


@on_both
def test_what_a_process_leaves_behind_that_is_killed_between_the_commit_of_delay_and_its_publishing(
    run: Programs, broker: str, notes: Path, armed: Path
) -> None:
    before = trap("scheduler_app.lifecycle.enqueue:_publish", armed, before=True)
    code = f"import config.celery\nfrom tests.support.workload import noted\nnoted.delay({str(notes)!r})"
    given = {"DATABASE_URL": database_url(), "BROKER_URL": broker_url(broker), "DEBUG": "true"} | FAST
    done = subprocess.run([sys.executable, "-c", f"{before}\n{code}"], cwd=ROOT, env=os.environ | given, check=False)
    assert (done.returncode, armed.exists()) == (-signal.SIGKILL, False)
    assert JobRun.objects.get().dispatched_at is not None
    assert messages(broker) == 0

    run.beat(**FAST)
    run.worker(**FAST)
    settles(broker)
    assert ends() == [("succeeded", 1)]
    assert lines(notes) == ["done 1"]


LEDGER = "scheduler_app.worker.ledger"
ONCE_LOST = [(1, "worker_lost"), (2, "returned")]
# What is left: the run's attempts, whether it has ended, what it noted; in the end: attempts, outcomes, what it noted.
WORKERS = {
    "claim committed": (
        Killed({"function": f"{LEDGER}:write", "when": "lambda written, *_: written.claimed"}, (1, False, [])),
        (2, ONCE_LOST, ["done 2"]),
    ),
    "the task returned, not yet finished": (
        Killed({"function": f"{LEDGER}:Ledger.finish", "before": True}, (1, False, ["done 1"])),
        (2, ONCE_LOST, ["done 1", "done 2"]),
    ),
    "finish committed, before the acknowledgement": (
        Killed({"function": f"{LEDGER}:write", "when": "lambda written, *_: written.done"}, (1, True, ["done 1"])),
        (1, [], ["done 1"]),
    ),
}


@pytest.mark.parametrize(
    ("name", "broker"),
    [
        *((name, "postgres") for name in WORKERS),
        pytest.param(list(WORKERS)[2], "rabbitmq", marks=pytest.mark.proof),
    ],
    indirect=["broker"],
)
def test_what_a_worker_leaves_behind_that_is_killed_right_after(
    name: str, run: Programs, broker: str, notes: Path, armed: Path
) -> None:
    killed, repaired = WORKERS[name]
    noted.delay(str(notes))
    run.beat(**FAST)
    dies(run.worker(before=trap(armed=armed, **killed.point), **FAST), armed)
    left = JobRun.objects.get()
    assert (left.attempts, left.finished_at is not None, lines(notes)) == killed.left
    wait_until(lambda: messages(broker), 10, "its message, which was not acknowledged")

    run.worker("next worker", **FAST)
    settles(broker)
    attempts, outcome, said = repaired
    assert ends() == [("succeeded", attempts)]
    assert outcomes() == outcome
    assert lines(notes) == said


@on_postgres
def test_what_a_worker_leaves_behind_that_is_killed_between_burying_and_its_acknowledgement(
    run: Programs, broker: str, notes: Path, armed: Path
) -> None:
    breaking.delay(1, str(notes))
    dies(run.worker(before=trap(f"{LEDGER}:bury", armed), **FAST), armed)
    letter = DeadLetter.objects.values().get()
    assert messages(broker, DEAD_QUEUE) == 1

    run.worker("next worker", **FAST)
    settles(broker)
    assert ends() == [("dead", 1)]
    assert outcomes() == [(1, "failed")]
    assert lines(notes) == ["broken 1"]
    assert DeadLetter.objects.values().get() == letter


@on_postgres
def test_what_a_worker_leaves_behind_that_is_killed_between_deferring_an_unknown_task_and_its_acknowledgement(
    run: Programs, broker: str, notes: Path, armed: Path
) -> None:
    noted.delay(str(notes))
    run.beat(**FAST)
    dies(run.worker("yesterday", before=trap(f"{LEDGER}:defer", armed), **FAST | YESTERDAY), armed)
    left = JobRun.objects.get()
    assert (left.status, left.attempts, left.dispatched_at) == ("queued", 0, None)
    assert left.unknown_since is not None
    wait_until(lambda: messages(broker), 10, "its message, which was not acknowledged")

    run.worker("yesterday's next", **FAST | YESTERDAY).says("is not known here: it waits")
    run.worker("today", **FAST)
    settles(broker)
    assert ends() == [("succeeded", 1)]
    assert lines(notes) == ["done 1"]
    assert not DeadLetter.objects.exists()


@on_postgres
def test_a_successor_is_dispatched_whose_predecessors_worker_was_killed_right_after_it_released_it(
    run: Programs, broker: str, notes: Path, armed: Path
) -> None:
    columns = {"task": noted.name, "payload": {"path": str(notes)}, "time_limit": 60}
    (job,) = due_jobs(1, schedule="", next_run_at=None, concurrency_policy="queue_one", **columns)
    first, second = (run_now(job, "tester") for _ in range(2))
    assert JobRun.objects.get(pk=second).held_by == first
    released = "lambda done, *_: any(each.released for each in done)"
    dies(
        run.worker(before=trap("scheduler_app.lifecycle.claim:_announce", armed, before=True, when=released), **FAST),
        armed,
    )
    assert JobRun.objects.get(pk=first).status == "succeeded"
    left = JobRun.objects.get(pk=second)
    assert (left.status, left.held_by, left.dispatched_at) == ("queued", None, None)

    run.beat(**FAST)
    run.worker("next worker", **FAST)
    settles(broker)
    assert ends() == [("succeeded", 1)] * 2
    assert lines(notes) == ["done 1"] * 2
    assert outcomes() == []
