"""The keeper beside a transaction that holds its runs: the lease is renewed all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection

from scheduler_app.lifecycle.keep import Identity
from scheduler_app.models import JobRun, Worker
from scheduler_app.models.ids import new_id
from scheduler_app.worker.keeper import Keeper
from tests.support.brokers import database_url
from tests.support.definitions import a_run, known_tasks, options

pytestmark = [pytest.mark.race, pytest.mark.django_db(transaction=True)]


class Ledger:
    """Knows of no claim."""

    def open_for(self, worker: UUID) -> None:
        """Nothing is claimed here."""

    def unsettled(self) -> dict[UUID, int]:
        return {}

    def in_pool(self) -> list[Any]:
        return []


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    me = Identity(new_id(), "one@test", "test", 1, 1, ("default",))
    with known_tasks(options()):
        yield Keeper(me, Ledger(), lambda call: call())  # type: ignore[arg-type]
    connection.close()  # its session has a lock timeout


def test_a_locked_run_costs_no_heartbeat_and_is_lost_once_it_is_free(keeper: Keeper) -> None:
    assert keeper._beat(False)
    run = a_run(status="running", locked_by=keeper.me.id, trigger="code")
    keeper._beat(True)  # now it is suspected
    with psycopg.connect(database_url()) as task:
        task.execute("SELECT 1 FROM scheduler_app_jobrun WHERE id = %s FOR UPDATE", [run.id])
        before = Worker.objects.get().beats
        assert keeper._beat(True)
        assert keeper._beat(True)
        assert Worker.objects.get().beats == before + 2
        assert JobRun.objects.get(pk=run.pk).status == "running"
    assert keeper._beat(True)
    run.refresh_from_db()
    assert (run.status, run.attempts) == ("queued", 1)
