"""The classic mistakes of job schedulers, one test each: what would go wrong is set up, and does not.

Of the eight, "a held HTTP connection" is that of the HTTP API, which does not exist yet.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connection

from scheduler_app.lifecycle.record import Recorded, record
from scheduler_app.models import Attempt, DeadLetter, Job, JobRun
from tasks.examples import flaky, poison
from tests.support.beats import due_jobs, lead, second_ago
from tests.support.definitions import known_tasks, options
from tests.support.programs import Programs, wait_until
from tests.support.workload import dying_once, gated, lines, noted, noted_pid

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

on_postgres = pytest.mark.parametrize("broker", ["postgres"], indirect=True)


@pytest.fixture
def report() -> Iterator[None]:
    """The task of the jobs that are only recorded."""
    with known_tasks(options()):
        yield


@on_postgres
def test_promising_exactly_once(run: Programs, notes: Path) -> None:
    """A worker that dies after the work and before the word makes it happen twice; what is promised is that the second
    time has the same key, by which whoever does the work knows it again."""
    run.beat().leads()
    result = dying_once.delay(str(notes))
    run.worker("one")
    wait_until(lambda: len(lines(notes)) == 1, what="the work")
    run.worker("two")
    key = result.get(timeout=30)
    assert lines(notes) == [key, key]
    assert JobRun.objects.get().attempts == 2


def test_two_beats_without_a_run_key(report: None) -> None:
    """Both record every slot at once, with no lock between them: the key of the row keeps one run of each."""
    start = second_ago(5)
    due_jobs(20, start, schedule="@every 1s", catch_up="all")
    gate = threading.Barrier(2)

    def record_all() -> None:
        gate.wait(10)
        while isinstance(done := record(None, now=second_ago()), Recorded) and (done.more or done.locked or done.runs):
            pass
        connection.close()

    beats = [threading.Thread(target=record_all) for _ in range(2)]
    for beat in beats:
        beat.start()
    for beat in beats:
        beat.join(60)
    runs = list(JobRun.objects.values_list("job_id", "scheduled_for"))
    assert len(runs) == len(set(runs)) >= 20 * 5


def test_leader_election_as_the_only_guard(report: None) -> None:
    """A leader that was frozen still takes itself for one: what it writes is refused, since its epoch is over."""
    due_jobs(3)
    deposed = lead("frozen")
    successor = lead("next")
    assert record(deposed) is None
    assert not JobRun.objects.exists()
    assert record(successor) is not None
    assert set(JobRun.objects.values_list("recorded_epoch", flat=True)) == {successor.epoch}


@on_postgres
def test_a_lease_shorter_than_the_job(run: Programs, notes: Path, tmp_path: Path) -> None:
    """A job of many leases runs once: its worker keeps the lease while it works."""
    short = {"EVERYSLOT_LEASE": "1", "EVERYSLOT_HEARTBEAT": "0.3", "EVERYSLOT_LOOP": "0.1", "EVERYSLOT_PREFETCH": "1"}
    run.beat(**short).leads()
    run.worker("one", **short).ready()
    run.worker("two", **short).ready()
    gate = tmp_path / "gate"
    result = gated.delay(str(notes), str(gate))
    wait_until(lambda: noted_pid(notes, "start", 1), what="its start")
    marker = noted.apply_async((str(tmp_path / "later"),), countdown=4)
    assert marker.get(timeout=30) == "done", "four leases later"
    gate.touch()
    assert result.get(timeout=30) == 1
    assert [line.split()[0] for line in lines(notes)] == ["start", "end"]


@on_postgres
def test_retries_without_jitter(run: Programs) -> None:
    """Runs that fail at once come back at different times, or they would overrun at once what they failed of."""
    run.beat(EVERYSLOT_LOOP="0.1").leads()
    run.worker(concurrency=2).ready()
    results = [flaky.delay(fail_times=1) for _ in range(30)]
    for result in results:
        assert result.get(timeout=60) == "succeeded at attempt 2"
    first = {each.run_id: each.finished_at for each in Attempt.objects.filter(number=1)}
    waits = [(run.run_after - first[run.pk]).total_seconds() for run in JobRun.objects.all()]
    assert all(-0.1 <= wait <= 1.1 for wait in waits), "within the first backoff of one second"
    tenths = {round(wait, 1) for wait in waits}
    assert len(tenths) >= 5, f"thirty waits within a second fall into {tenths}"


@on_postgres
def test_no_dead_letter_state(run: Programs, notes: Path) -> None:
    """A run that can never succeed ends, with its reason on record, and holds up nobody."""
    run.beat(EVERYSLOT_LOOP="0.1").leads()
    worker = run.worker().ready()
    bad = poison.delay()
    assert noted.delay(str(notes)).get(timeout=30) == "done"
    wait_until(lambda: JobRun.objects.filter(pk=bad.id, status="dead"), 60, "its end")
    letter = DeadLetter.objects.get()
    assert (str(letter.run_id), letter.attempt, letter.reason) == (bad.id, 3, "attempts_exhausted")
    assert "this can never work" in letter.detail
    assert noted.delay(str(notes)).get(timeout=30) == "done"
    assert worker.alive


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("first", "now", "slots"),
    [
        # 02:30 does not exist on 29 March 2026: it runs at 03:00, the first minute after the gap.
        ("2026-03-28T01:30", "2026-03-30T12:00", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
        # 02:30 comes twice on 25 October 2026: it runs the first time.
        ("2026-10-24T00:30", "2026-10-26T12:00", ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]),
    ],
    ids=["spring", "autumn"],
)
def test_ignored_time_zones(report: None, first: str, now: str, slots: list[str]) -> None:
    """Half past two in Berlin is another instant in summer, does not exist once a year, and comes twice once a year."""
    columns = {"schedule": "30 2 * * *", "timezone": "Europe/Berlin", "catch_up": "all"}
    due_jobs(1, utc(first), misfire_grace=10**9, **columns)
    record(None, now=utc(now))
    assert list(JobRun.objects.order_by("scheduled_for").values_list("scheduled_for", flat=True)) == [
        utc(slot) for slot in slots
    ]
    assert Job.objects.get().next_run_at > utc(now)
