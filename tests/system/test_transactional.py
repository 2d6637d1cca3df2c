"""Transactional tasks with real workers: the work, what it enqueues and the run's success are there together, once."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from celery import chain
from django.db import connection

from scheduler_app.models import Attempt, DeadLetter, JobRun
from tests.support.programs import Programs, wait_until
from tests.support.workload import booking, echo, lines, noted, noted_pid

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

on_postgres = pytest.mark.parametrize("broker", ["postgres"], indirect=True)
QUICK = {"EVERYSLOT_LOOP": "0.1"}
SHORT = {"EVERYSLOT_LEASE": "3", "EVERYSLOT_HEARTBEAT": "1"}


def starts(notes: Path, attempt: int) -> int:
    """Wait until this attempt has written its row and its follower; the process that works on it."""
    wait_until(lambda: noted_pid(notes, "start", attempt), what=f"attempt {attempt}")
    return noted_pid(notes, "start", attempt) or 0


def booked(name: str) -> list[str]:
    """The attempts whose row is there."""
    return list(DeadLetter.objects.filter(reason=name).order_by("id").values_list("detail", flat=True))


def followers(name: str) -> list[str]:
    """The attempts whose `.delay()` is there, as a run."""
    texts = [args[1] for args in JobRun.objects.filter(task=noted.name).order_by("seq").values_list("args", flat=True)]
    return [text.removeprefix(f"follower {name}-") for text in texts if text.startswith(f"follower {name}-")]


def successors() -> list[Any]:
    """What the chains passed on."""
    return [args[0] for args in JobRun.objects.filter(task=echo.name).order_by("seq").values_list("args", flat=True)]


def outcomes(run_id: Any) -> list[tuple[int, str]]:
    """(number, outcome) of every attempt on record."""
    return list(Attempt.objects.filter(run_id=run_id).order_by("number").values_list("number", "outcome"))


def written_by(table: str, column: str, value: Any) -> str:
    """The transaction that wrote this row last."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT xmin::text FROM scheduler_app_{table} WHERE {column} = %s", [value])
        return str(cursor.fetchone()[0])


def everything_ended() -> bool:
    return not JobRun.objects.filter(finished_at=None).exists()


def test_the_work_what_it_enqueued_and_the_success_are_there_in_one_moment(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    run.beat(**QUICK)
    run.worker(**QUICK).ready()
    result = chain(booking.s(str(notes), "good", str(gate)), echo.s()).delay()
    starts(notes, 1)
    assert (booked("good"), followers("good"), successors()) == ([], [], [])
    gate.touch()
    assert (result.get(timeout=30), result.parent.get(timeout=30)) == (1, 1)
    wait_until(everything_ended, what="the follower")
    assert (booked("good"), followers("good"), successors()) == (["1"], ["1"], [1])
    assert lines(notes)[2:] == ["follower good-1 1"]
    assert written_by("jobrun", "id", result.parent.id) == written_by("deadletter", "reason", "good")
    assert not Attempt.objects.exists()


@on_postgres
def test_an_exception_takes_the_work_back_and_the_retry_does_it_once(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    run.beat(**QUICK)
    run.worker(**QUICK).ready()
    hopeless = booking.apply_async((str(tmp_path / "other"), "hopeless", str(gate), 9), max_attempts=2)
    result = chain(booking.s(str(notes), "flaky", str(gate), failures=2), echo.s()).delay()
    assert (result.get(timeout=30), result.parent.get(timeout=30)) == (3, 3)
    wait_until(everything_ended, what="the rest")
    assert outcomes(result.parent.id) == [(1, "retry"), (2, "retry"), (3, "returned")]
    assert (booked("flaky"), followers("flaky"), successors()) == (["3"], ["3"], [3])
    assert [line for line in lines(notes) if "follower" in line] == ["follower flaky-3 1"]
    assert JobRun.objects.get(pk=hopeless.id).reason == "attempts_exhausted"
    assert (booked("hopeless"), followers("hopeless")) == ([], [])
    assert "follower" not in "".join(lines(tmp_path / "other"))


@on_postgres
def test_a_worker_killed_before_the_commit_leaves_nothing_and_the_next_attempt_does_it_once(
    run: Programs, notes: Path, tmp_path: Path
) -> None:
    run.beat(**QUICK)
    first, second = (run.worker(name, **QUICK) for name in ("first", "second"))
    first.ready()
    second.ready()
    result = chain(booking.s(str(notes), "killed", str(tmp_path / "gate-{attempt}")), echo.s()).delay()
    run.worker_of(starts(notes, 1)).kill(signal.SIGKILL)
    starts(notes, 2)
    assert (booked("killed"), followers("killed"), successors()) == ([], [], [])
    (tmp_path / "gate-2").touch()
    assert result.get(timeout=30) == 2
    wait_until(everything_ended, what="the follower")
    assert (booked("killed"), followers("killed"), successors()) == (["2"], ["2"], [2])
    assert outcomes(result.parent.id) == [(1, "worker_lost"), (2, "returned")]


@on_postgres
def test_an_attempt_frozen_past_its_lease_cannot_commit_its_work(run: Programs, notes: Path, tmp_path: Path) -> None:
    beat = run.beat(**SHORT | QUICK)
    workers = [run.worker(name, EVERYSLOT_PREFETCH="1", **SHORT | QUICK) for name in ("one", "two")]
    beat.leads()
    for each in workers:
        each.ready()
    result = chain(booking.s(str(notes), "frozen", str(tmp_path / "gate-{attempt}")), echo.s()).delay()
    stopped = run.worker_of(starts(notes, 1)).freeze()
    starts(notes, 2)
    for each in stopped:
        each.resume()
    (tmp_path / "gate-1").touch()
    wait_until(lambda: noted_pid(notes, "end", 1), what="the late end")
    later = echo.delay("later")  # for the thawed one, after its late end: the other is busy and takes no second message
    assert later.get(timeout=30) == "later"
    assert (booked("frozen"), followers("frozen"), successors()) == ([], [], ["later"])
    (tmp_path / "gate-2").touch()
    assert result.get(timeout=30) == 2
    wait_until(everything_ended, what="the follower")
    assert (booked("frozen"), followers("frozen"), successors()) == (["2"], ["2"], ["later", 2])
    assert outcomes(result.parent.id) == [(1, "worker_lost"), (2, "returned")]
