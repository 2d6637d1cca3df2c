"""Real beats with a Redis of their own that is stalled, killed, emptied and robbed: recording goes on, no beat dies."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.db.models import F, Max
from redis import Redis
from redis.exceptions import RedisError

from scheduler_app.local.redis import MEND, on_machine
from scheduler_app.models import JobRun, Term
from scheduler_app.store.term import database_time
from tests.support.beats import due_jobs, second_ago
from tests.support.missing import without
from tests.support.programs import BeatProcess, programs, wait_until

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

LATE = timedelta(seconds=10)
LOCK = "redbeat::lock"


class Server:
    """A Redis that the test may do anything to."""

    def __init__(self, folder: Path) -> None:
        binary = on_machine()
        if binary is None:
            without(f"Redis is needed: {MEND}")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        self._command = [str(binary.path), *options]
        self.client = Redis(port=self.port, socket_timeout=1)
        self.start()

    def start(self) -> None:
        self._child = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        wait_until(self._answers, 10, "Redis to answer")

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except RedisError:
            return False

    def send(self, number: int) -> None:
        self._child.send_signal(number)

    def kill(self) -> None:
        self._child.kill()
        self._child.wait(10)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    yield found
    found.kill()


@pytest.fixture
def pair(server: Server) -> Iterator[list[BeatProcess]]:
    """Two beats, the first of which leads."""
    Term.objects.all().delete()
    with programs() as started:
        first = started.beat("first", REDIS_URL=server.url).leads()
        yield [first, started.beat("second", REDIS_URL=server.url).ready()]
    Term.objects.all().delete()


def recorded_after(at: datetime) -> bool:
    return JobRun.objects.filter(created_at__gt=at).exists()


def assert_slots_are_whole_and_in_time(jobs: int, first: datetime, late: timedelta = LATE) -> None:
    last = JobRun.objects.aggregate(last=Max("scheduled_for"))["last"]
    slots = round((last - first).total_seconds())
    assert JobRun.objects.filter(scheduled_for__lt=last, status="queued").count() == jobs * slots
    assert not JobRun.objects.filter(created_at__gt=F("scheduled_for") + late).exists()


def test_the_lock_alone_keeps_a_beat_from_contending(server: Server, pair: list[BeatProcess]) -> None:
    first, second = pair
    assert server.client.get(LOCK) is not None
    wait_until(lambda: "another beat holds the Redis lock" in second.log, 10, "the second to find the lock taken")
    server.client.set(LOCK, "thief", px=2500)
    wait_until(lambda: "standing by" in first.log, 10, "the robbed leader to stand by")
    wait_until(lambda: Term.objects.get().holder != "", 15, "a leader after the thief's lock ran out")
    assert first.alive
    assert second.alive


def test_redis_stalled_killed_and_restarted_costs_no_slot_and_no_beat(server: Server, pair: list[BeatProcess]) -> None:
    first = second_ago()
    due_jobs(10, first, schedule="@every 1s", task="tasks.examples.ok")
    wait_until(JobRun.objects.exists)
    server.send(signal.SIGSTOP)
    at = database_time()
    wait_until(lambda: recorded_after(at + timedelta(seconds=6)), 20, "recording beside a stalled Redis")
    server.send(signal.SIGCONT)
    server.kill()
    at = database_time()
    wait_until(lambda: recorded_after(at + timedelta(seconds=3)), 20, "recording without Redis")
    leader = next(each for each in pair if each.leading)
    leader.kill(signal.SIGKILL)
    at = database_time()
    wait_until(lambda: recorded_after(at), 20, "another leader without Redis")
    assert database_time() - at < LATE
    server.start()
    at = database_time()
    wait_until(lambda: recorded_after(at + timedelta(seconds=3)), 20, "recording with Redis again")
    wait_until(lambda: server.client.get(LOCK) is not None, 10, "the lock to be held again")
    (left,) = (each for each in pair if each is not leader)
    left.kill(signal.SIGTERM)
    assert left.wait() == 0
    assert server.client.get(LOCK) is None, "a clean end frees the lock"
    assert_slots_are_whole_and_in_time(10, first)
    assert left.lines_of_error == []


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_five_minutes_without_redis_keep_every_slot_within_ten_seconds(server: Server, pair: list[BeatProcess]) -> None:
    first = second_ago()
    due_jobs(20, first, schedule="@every 1s", task="tasks.examples.ok")
    wait_until(JobRun.objects.exists)
    server.kill()
    at = database_time()
    wait_until(lambda: recorded_after(at + timedelta(minutes=5)), 330, "five minutes")
    server.start()
    at = database_time()
    wait_until(lambda: recorded_after(at + timedelta(seconds=10)), 30)
    assert all(each.alive for each in pair)
    assert_slots_are_whole_and_in_time(20, first)


ENTRY = """
from datetime import timedelta
from config.celery import app
app.conf.beat_schedule = {"ours": {"task": "tasks.examples.ok", "schedule": timedelta(seconds=0.5)}}
"""


def fired() -> int:
    return JobRun.objects.filter(task="tasks.examples.ok", job=None).count()


def test_celerys_own_entries_fire_through_redbeat_from_whoever_leads(server: Server) -> None:
    Term.objects.all().delete()
    with programs() as started:
        first = started.beat("first", before=ENTRY, REDIS_URL=server.url).leads()
        second = started.beat("second", before=ENTRY, REDIS_URL=server.url).ready()
        wait_until(lambda: fired() >= 3, 20, "the entry to fire")
        assert server.client.exists("redbeat:ours"), "the entry is RedBeat's"
        assert "Sending due task ours" in first.log
        assert "Sending due task ours" not in second.log
        first.kill(signal.SIGKILL)
        second.leads()
        before = fired()
        wait_until(lambda: fired() >= before + 3, 20, "the entry to fire from the next leader")
        assert "Sending due task ours" in second.log
    Term.objects.all().delete()
