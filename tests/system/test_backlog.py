"""A backlog that nobody works on: the broker holds one window of it, nothing goes twice, urgent work passes."""

from __future__ import annotations

import signal
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from django.db import connection

from scheduler_app.broker.publisher import Publisher
from scheduler_app.models import Attempt, JobRun
from tests.support.brokers import broker_url
from tests.support.missing import without
from tests.support.programs import Programs, wait_until

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]

MIB = 1024 * 1024
CONCURRENCY, PREFETCH = 2, 50  # pool processes, and messages that a worker holds for each of them
BACKLOG = """
INSERT INTO scheduler_app_jobrun (id, task, args, payload, scheduled_for, status, reason, attempts, max_attempts,
    run_after, dispatches, last_error, progress_message, trigger, triggered_by, request_key, concurrency_key,
    ordering_key, time_limit, queue, priority)
SELECT gen_random_uuid(), 'tasks.examples.ok', '[]', '{}', now(), 'queued', '', 0, 5, now(), 0, '', '', 'code', '',
    '', '', '', 900, 'default', %(priority)s
FROM generate_series(1, %(number)s)
"""


def queue_runs(number: int, priority: int = 4) -> None:
    """Runs that nobody has published, as a recorder leaves them."""
    with connection.cursor() as cursor:
        cursor.execute(BACKLOG, {"number": number, "priority": priority})


def depth(broker: str) -> int:
    publisher = Publisher(broker_url(broker))
    try:
        return publisher.depth("default") or 0
    finally:
        publisher.close()


def marked() -> int:
    return JobRun.objects.filter(status="queued", dispatched_at__isnull=False).count()


@pytest.mark.parametrize(
    ("window", "runs", "looks"),
    [(200, 2_000, 30), pytest.param(10_000, 100_000, 1_000, marks=[pytest.mark.proof, pytest.mark.timeout(900)])],
)
def test_without_workers_the_broker_holds_one_window_and_urgent_work_passes_the_rest(
    run: Programs, broker: str, window: int, runs: int, looks: int
) -> None:
    queue_runs(runs)
    # Silence is looked at every second: what is still in the queue must not be sent again for it.
    beat = run.beat(EVERYSLOT_DISPATCH_WINDOW=str(window), EVERYSLOT_DISPATCH_TIMEOUT="1").leads()
    wait_until(lambda: marked() >= window, 60, "the window to fill")
    wait_until(lambda: depth(broker) >= window, 60, "the messages to arrive")
    before = memory_and_disk(broker)
    depths: list[int] = []
    wait_until(lambda: depths.append(depth(broker)) or len(depths) >= looks, 300)
    assert not JobRun.objects.filter(dispatches__gt=1).exists(), "a hint was published twice"
    assert marked() == window
    assert set(depths) == {window}
    after = memory_and_disk(broker)
    assert after[0] - before[0] < 30 * MIB, "the broker's memory grows"
    assert after[1] - before[1] < 30 * MIB, "the broker's disk grows"

    queue_runs(1, priority=9)
    urgent = JobRun.objects.get(priority=9)
    worker = run.worker(concurrency=CONCURRENCY, EVERYSLOT_PREFETCH=str(PREFETCH)).ready()
    wait_until(lambda: JobRun.objects.filter(pk=urgent.pk, status="succeeded").exists(), 120, "the urgent run")
    urgent.refresh_from_db()
    # Published before it: one window. Held by the worker when it came: a prefetch, and claims of those have no order.
    assert JobRun.objects.filter(started_at__lt=urgent.started_at).count() <= window + CONCURRENCY * PREFETCH
    assert beat.lines_of_error == worker.lines_of_error == []


def memory_and_disk(broker: str) -> tuple[int, int]:
    """Bytes of the private RabbitMQ's memory and of its folder, or of the transport's messages on PostgreSQL."""
    if broker != "rabbitmq":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_total_relation_size('everyslot_transport_message')")
            found = cursor.fetchone()
        assert found is not None
        return 0, int(found[0])
    port = urlsplit(broker_url(broker)).port
    for process in psutil.process_iter(["name"]):
        if not process.info["name"].startswith("beam"):
            continue
        if any(each.laddr.port == port and each.status == psutil.CONN_LISTEN for each in process.net_connections()):
            home = Path(process.environ()["RABBITMQ_MNESIA_BASE"])
            used = sum(each.stat().st_size for each in home.rglob("*") if each.is_file())
            return process.memory_info().rss, used
    without("this RabbitMQ is not a process of this machine: its memory and disk cannot be seen; unset BROKER_URL")


def test_a_worker_told_to_stop_amid_short_runs_ends_soon_and_leaves_none_running(run: Programs, broker: str) -> None:
    queue_runs(400)
    run.beat().leads()
    worker = run.worker(concurrency=2, EVERYSLOT_PREFETCH="100").ready()
    wait_until(JobRun.objects.filter(status="succeeded").exists, 60, "the first runs")
    worker.kill(signal.SIGTERM)
    assert worker.wait(20) == 0, "a child waits 30 s for a result that nobody reads"
    assert not JobRun.objects.filter(status="running").exists()
    assert set(Attempt.objects.values_list("outcome", flat=True)) <= {"given_back"}
    run.worker("another", concurrency=2).ready()
    touched = JobRun.objects.filter(id__in=Attempt.objects.values("run_id"))
    wait_until(lambda: touched.filter(status="succeeded").count() == touched.count(), 60, "what was given back")
