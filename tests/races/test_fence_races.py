"""The fence beside a takeover: an attempt that is over writes nothing, and none begins between its look and commit."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from scheduler_app.core.errors import LostGround
from scheduler_app.lifecycle.lose import lose_worker
from scheduler_app.models import JobRun, Worker
from scheduler_app.worker.context import CurrentRun
from scheduler_app.worker.fenced import WRITES
from tests.support.definitions import a_run
from tests.support.programs import wait_until

pytestmark = [pytest.mark.race, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def run() -> CurrentRun:
    """The first attempt of a run, under a worker."""
    worker = Worker.objects.create(name="w", lease=30.0, lock_key=77)
    row = a_run(status="running", locked_by=worker.id, trigger="code")
    return CurrentRun(row.id, 1, row.scheduled_for, row.scheduled_for, 60, worker=worker.id)


def lose(run: CurrentRun) -> None:
    assert run.worker is not None
    lose_worker(run.worker, "killed")


def in_a_session_of_its_own(work: Any) -> threading.Thread:
    def go() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=go)
    thread.start()
    return thread


def status(run: CurrentRun) -> str:
    return JobRun.objects.get(pk=run.id).status


WRITING: dict[str, Any] = {
    "update": lambda groups: groups.update(name="b"),
    "delete": lambda groups: groups.delete(),
    "create": lambda groups: groups.create(name="b"),
    "get_or_create": lambda groups: groups.get_or_create(name="b"),
    "update_or_create": lambda groups: groups.update_or_create(name="a", defaults={"name": "b"}),
    "bulk_create": lambda groups: groups.bulk_create([Group(name="b")]),
    "bulk_update": lambda groups: groups.bulk_update([Group(pk=Group.objects.get().pk, name="b")], ["name"]),
}


def names() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


@pytest.mark.parametrize("write", WRITES)
def test_every_write_passes_for_the_current_attempt_and_leaves_nothing_for_a_later_one(
    run: CurrentRun, write: str
) -> None:
    Group.objects.create(name="a")
    groups = run.fenced(Group.objects.all())
    with transaction.atomic():
        WRITING[write](groups)
        assert names() != ["a"]
        transaction.set_rollback(True)
    lose(run)
    with pytest.raises(LostGround, match="attempt 1"):
        WRITING[write](groups)
    assert names() == ["a"]


def test_what_only_reads_is_not_fenced(run: CurrentRun) -> None:
    with pytest.raises(AttributeError, match="filter and read before it"):
        run.fenced(Group.objects).filter(name="a")


def test_an_attempt_that_is_lost_in_the_block_leaves_nothing_and_was_not_in_the_way(run: CurrentRun) -> None:
    def write() -> None:
        with run.fence():
            Group.objects.create(name="late")
            in_a_session_of_its_own(lambda: lose(run)).join(30)
            assert status(run) == "queued"

    with pytest.raises(LostGround):
        write()
    assert names() == []


def test_no_other_attempt_begins_between_the_look_and_the_commit(run: CurrentRun) -> None:
    with transaction.atomic():
        with run.fence():
            Group.objects.create(name="in time")
        taking = in_a_session_of_its_own(lambda: lose(run))
        wait_until(waits_for_a_lock, what="the takeover to wait")
        assert status(run) == "running"
    taking.join(30)
    assert (names(), status(run)) == (["in time"], "queued")


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        found = cursor.fetchone()
    return bool(found and found[0])


def test_an_error_in_the_block_comes_out_as_it_is(run: CurrentRun) -> None:
    def write() -> None:
        with run.fence():
            Group.objects.create(name="half")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        write()
    assert names() == []


def test_without_a_worker_the_fence_is_a_transaction() -> None:
    now = a_run().scheduled_for
    run = CurrentRun(JobRun().id, 1, now, now, 60)
    with run.fence():
        run.fenced(Group.objects).create(name="in a test")
    assert names() == ["in a test"]
