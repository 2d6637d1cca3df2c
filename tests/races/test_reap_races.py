"""Reaping while others hold locks or write: nobody waits for a frozen worker, and a finish that came first wins."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from scheduler_app.clock import HeldClock
from scheduler_app.lifecycle.reap import TIDY_EVERY, Reaper
from scheduler_app.models import JobRun, Worker
from tests.support.beats import second_ago
from tests.support.definitions import a_run

pytestmark = [pytest.mark.race, pytest.mark.django_db(transaction=True)]


def dead_worker(name: str) -> tuple[UUID, JobRun]:
    worker = Worker.objects.create(name=name, lease=2, lock_key=1)
    return worker.id, a_run(status="running", locked_by=worker.id)


def in_another_session(work: Any) -> None:
    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)


def test_a_run_that_a_frozen_worker_keeps_locked_delays_no_other_and_follows_later() -> None:
    frozen, kept = dead_worker("frozen")
    other, free = dead_worker("other")
    clock = HeldClock(datetime(2026, 12, 1, tzinfo=UTC))

    def reap(reaper: Reaper, seconds: int) -> None:
        for _ in range(seconds):
            reaper.reap()
            clock.advance(1)

    with transaction.atomic():
        JobRun.objects.select_for_update().get(id=kept.id)
        in_another_session(lambda: reap(Reaper(clock), 5))
        free.refresh_from_db()
        assert (free.status, free.locked_by) == ("queued", None)
    kept.refresh_from_db()
    assert (kept.status, kept.locked_by) == ("running", frozen)
    Worker.objects.filter(id=frozen).update(stopped_at=second_ago(60))
    in_another_session(lambda: reap(Reaper(clock), round(TIDY_EVERY)))
    kept.refresh_from_db()
    assert (kept.status, kept.locked_by) == ("queued", None)
    assert Worker.objects.filter(stopped_at__isnull=True).count() == 0
    assert other != frozen


def test_a_finish_that_commits_first_wins() -> None:
    worker, run = dead_worker("slow")
    clock = HeldClock(datetime(2026, 12, 1, tzinfo=UTC))
    reaper = Reaper(clock)
    reaper.reap()
    JobRun.objects.filter(id=run.id).update(status="succeeded", finished_at=second_ago())
    for _ in range(4):
        clock.advance(1)
        assert reaper.reap() == 0
    run.refresh_from_db()
    assert run.status == "succeeded"
    assert Worker.objects.get(id=worker).stopped_at is not None
