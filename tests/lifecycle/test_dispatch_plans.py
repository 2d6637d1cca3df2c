"""What dispatching reads: only ready rows, whatever else the table holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from scheduler_app.lifecycle import dispatch as module
from scheduler_app.lifecycle.dispatch import dispatch, redispatch
from scheduler_app.lifecycle.overview import runs_of
from scheduler_app.models import JobRun
from scheduler_app.store import dispatch as store
from scheduler_app.store.statements import Statement, load
from tests.support.beats import due_jobs
from tests.support.brokers import FakeBroker

pytestmark = pytest.mark.django_db

FILL = """
INSERT INTO scheduler_app_jobrun (id, task, args, payload, scheduled_for, status, reason, attempts, max_attempts,
    run_after, dispatches, last_error, progress_message, trigger, triggered_by, request_key, concurrency_key,
    ordering_key, time_limit, queue, priority, finished_at)
SELECT gen_random_uuid(), 'tests.report', '[]', '{}', now(), %(status)s, '', %(attempts)s, 5,
    now() + %(delay)s * interval '1 second', 0, '', '', 'code', '', '', '', '', 900, 'default', n %% 10,
    CASE WHEN %(status)s = 'succeeded' THEN now() END
FROM generate_series(1, %(number)s) n
"""

HISTORY = """
INSERT INTO scheduler_app_jobrun (id, job_id, task, args, payload, scheduled_for, status, reason, attempts,
    max_attempts, run_after, dispatches, last_error, progress_message, trigger, triggered_by, request_key,
    concurrency_key, ordering_key, time_limit, queue, priority, finished_at)
SELECT gen_random_uuid(), %(first)s + n %% %(jobs)s, 'tests.report', '[]', '{}', now() - n * interval '1 second',
    'succeeded', '', 1, 5, now(), 1, '', '', 'schedule', '', '', '', '', 900, 'default', 4, now()
FROM generate_series(1, %(number)s) n
"""


def fill(number: int, *, status: str = "queued", delay: float = -1) -> None:
    with connection.cursor() as cursor:
        attempts = 1 if status == "succeeded" else 0
        cursor.execute(FILL, {"number": number, "status": status, "delay": delay, "attempts": attempts})
        cursor.execute("ANALYZE scheduler_app_jobrun")


def explain(statement: Statement, **params: Any) -> list[dict[str, Any]]:
    """The scans of runs in the executed plan."""
    return explained(statement.sql, params)


def explained(statement: str, params: Any) -> list[dict[str, Any]]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params)
        found = cursor.fetchone()
        transaction.set_rollback(True)
    assert found is not None
    return [node for node in nodes(found[0][0]["Plan"]) if node.get("Relation Name") == "scheduler_app_jobrun"]


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


def test_marking_reads_ready_rows_through_their_partial_index_and_nothing_else() -> None:
    fill(5_000, status="succeeded")
    fill(5_000, delay=3600)
    fill(300)
    scans = explain(store._SQL["mark_ready"], queues=["default"], rooms=[200])
    (ready,) = [scan for scan in scans if scan.get("Index Name") == "run_ready"]
    assert "run_after" in ready["Index Cond"], "what waits for its time is not even read"
    assert ready.get("Rows Removed by Filter", 0) == 0
    assert ready["Actual Rows"] * ready["Actual Loops"] <= 230
    assert not [scan for scan in scans if scan["Node Type"] == "Seq Scan" and scan.get("Actual Rows")]


@pytest.mark.parametrize(
    "number", [20_000, pytest.param(1_000_000, marks=[pytest.mark.proof, pytest.mark.timeout(900)])]
)
def test_what_is_ready_and_a_jobs_newest_runs_are_one_index_range_each(number: int) -> None:
    jobs = due_jobs(50)
    history(number, jobs[0].pk, len(jobs))
    fill(300)
    scans = explain(store._SQL["mark_ready"], queues=["default"], rooms=[200])
    (ready,) = [scan for scan in scans if scan.get("Index Name") == "run_ready"]
    assert ready["Actual Rows"] * ready["Actual Loops"] <= 230
    assert not [scan for scan in scans if scan["Node Type"] == "Seq Scan" and scan.get("Actual Rows")]

    statement, params = runs_of(jobs[7].pk)[:50].query.sql_with_params()
    (newest,) = explained(statement, params)
    assert (newest["Node Type"], newest["Index Name"]) == ("Index Scan", "run_history")
    assert newest["Actual Rows"] == 50
    assert newest.get("Rows Removed by Filter", 0) == 0
    assert newest["Shared Hit Blocks"] + newest["Shared Read Blocks"] <= 60, "a page a row, and the way down the tree"


def history(number: int, first: int, jobs: int) -> None:
    """So many ended runs, spread over the jobs as time would: each page of the table holds runs of many of them."""
    with connection.cursor() as cursor:
        cursor.execute(HISTORY, {"number": number, "first": first, "jobs": jobs})
        cursor.execute("ANALYZE scheduler_app_jobrun")


def test_counting_and_waiting_read_indexes_only() -> None:
    fill(5_000, status="succeeded")
    fill(300, delay=3600)
    for name, params in {
        "count_published": {"queues": ["default"], "window": 100},
        "queues_ready": {},
        "next_ready": {"queues": ["default"]},
    }.items():
        assert {scan.get("Index Name") for scan in explain(store._SQL[name], **params)} <= {
            "run_ready",
            "run_published",
        }


IN_USE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "run_running": ("keep.sql", "running_now", {"id": UUID(int=1)}),
    "run_running, of a dead worker": ("work.sql", "running_of_worker", {"worker": UUID(int=1), "limit": 100}),
    "run_active": ("record.sql", "active_runs", {"jobs": [1, 2]}),
    "run_active, of one job": ("decide.sql", "lock_active_of_job", {"job": 1}),
    "run_held": ("record.sql", "release_orphans", {"limit": 100}),
    "job_due": ("jobs.sql", "due_jobs_oldest", {"now": datetime(2026, 12, 1, tzinfo=UTC), "limit": 100}),
    "job_due, backwards": ("jobs.sql", "due_jobs_newest", {"now": datetime(2026, 12, 1, tzinfo=UTC), "limit": 100}),
    "job_due, the first": ("jobs.sql", "next_wake", {}),
    "worker_alive": ("reap.sql", "watch_workers", {}),
}


@pytest.mark.parametrize(("index", "used_by"), IN_USE.items(), ids=IN_USE)
def test_each_partial_index_serves_the_statement_that_it_is_there_for(
    index: str, used_by: tuple[str, str, dict[str, Any]]
) -> None:
    """Beside a history and a queue. Of so few jobs and workers a scan would be cheaper: it is off."""
    file, name, params = used_by
    history(5_000, due_jobs(1)[0].pk, 1)
    fill(3_000)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (FORMAT JSON) {load(file)[name].sql}", params)
        found = cursor.fetchone()
    assert found is not None
    assert index.partition(",")[0] in {node.get("Index Name") for node in nodes(found[0][0]["Plan"])}


def test_a_backlog_without_workers_publishes_one_window_and_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker()
    monkeypatch.setattr(module, "publisher", lambda: broker)
    fill(25_000)
    while (done := dispatch()).published:
        broker.messages = len(broker.published)
    assert done.full
    assert len(broker.published) == len({hint.run_id for hint in broker.published}) == 10_000
    with connection.cursor() as cursor:
        cursor.execute("UPDATE scheduler_app_jobrun SET dispatched_at = dispatched_at - interval '1 hour'")
    assert redispatch() == 0, "silent for an hour, but all of them are still in the queue"
    assert JobRun.objects.filter(dispatches__gt=1).count() == 0
