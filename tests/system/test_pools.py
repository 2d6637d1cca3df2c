"""Real workers on pools that keep less than the promise: they say so as they start, or do not start."""

from __future__ import annotations

import pytest

from scheduler_app.core.pools import objection
from tests.support.programs import Programs
from tests.support.workload import echo

pytestmark = [
    pytest.mark.system,
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("broker", ["postgres"], indirect=True),  # it plays no part
]
# gevent itself need not be installed: the solo pool says that it is one of these.
DISGUISED = "from celery.concurrency import solo; solo.TaskPool.__module__ = 'celery.concurrency.{}'"


def test_workers_on_threads_and_solo_warn_once_at_their_start_and_work(run: Programs) -> None:
    for pool in ("threads", "solo"):
        worker = run.worker(pool, pool=pool).ready()
        assert worker.log.count(f"WARNING/MainProcess] {objection(pool)}") == 1
        assert echo.delay(pool).get(timeout=30) == pool
        assert worker.lines_of_error == []
        worker.end()


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_a_worker_on_green_threads_ends_at_once_and_says_why(run: Programs, pool: str) -> None:
    worker = run.worker(pool, pool="solo", before=DISGUISED.format(pool))
    assert worker.wait(20) == 1
    assert worker.log.splitlines()[-1] == f"this worker does not start: {objection(pool)}"
    assert worker.lines_of_error == []
