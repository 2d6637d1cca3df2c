"""Chains, groups and links of durable tasks with real workers, also when a worker dies between two parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from celery import chain, current_app, group
from celery.result import AsyncResult
from django.db import connection

from scheduler_app.broker.publisher import publisher
from scheduler_app.models import Attempt, JobRun
from tests.support.brokers import broker_url
from tests.support.crash_points import trap
from tests.support.endings import MODULES, add, breaking, told
from tests.support.programs import Programs, WorkerProcess, wait_until
from tests.support.workload import echo, lines, noted, plain

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True)]


def answer(result: AsyncResult[Any]) -> Any:
    return result.get(timeout=60, interval=0.05)


def ends(task: Any) -> list[tuple[str, str, int]]:
    """Status, reason and attempts of the task's runs, in the order of their insertion."""
    return list(JobRun.objects.filter(task=task.name).order_by("seq").values_list("status", "reason", "attempts"))


def nothing_is_left() -> bool:
    return not JobRun.objects.filter(finished_at=None).exists()


def messages(broker: str) -> int | None:
    """What the queue holds. A message of a dead worker is there again at once with RabbitMQ, later with PostgreSQL."""
    if broker != "postgres":
        return publisher().depth("default")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM everyslot_transport_message WHERE queue = 'default'")
        return int(cursor.fetchone()[0])


def test_chains_groups_and_links_mean_what_celery_says(run: Programs, broker: str, tmp_path: Path) -> None:
    """One worker for all of it, since its start takes seconds; every call notes in a file of its own."""

    def at(name: str) -> str:
        return str(tmp_path / name)

    run.beat(EVERYSLOT_LOOP="0.1")
    run.worker(concurrency=2, **MODULES).ready()
    passing = chain(add.s(1, 2, at("passing")), add.s(10, at("passing")), add.s(100, at("passing"))).delay()
    keeping = chain(add.s(1, 2, at("keeping")), add.si(10, 20, at("keeping")), add.s(100, at("keeping"))).delay()
    grouped = group(add.s(n, n, at("grouped")) for n in range(4)).delay()
    fanned = chain(add.s(1, 1, at("fanned")), group(add.s(10, at("fanned")), add.s(20, at("fanned")))).delay()
    linked = add.apply_async((1, 2, at("linked")), link=[add.s(10, at("linked")), echo.si("immutable")])
    broken = breaking.apply_async((7, at("broken")), link=add.s(1, at("broken")), link_error=told.s(at("broken")))
    stopped = chain(add.s(1, 2, at("stopped")), breaking.s(at("stopped")), add.s(100, at("stopped"))).delay()
    plain_last = chain(noted.s(at("plain last"), at("plain last")), plain.s("by an ordinary task")).delay()
    with current_app.connection_for_write(broker_url(broker)) as there:  # this process knows one broker by itself
        first = chain(plain.s(at("plain first"), at("plain first")), noted.s("by a durable task"))
        plain_first = first.apply_async(connection=there)
    plain_between = chain(
        noted.s(at("between"), at("between")), plain.s(at("between")), noted.s("by the third")
    ).delay()
    delayed = chain(add.s(1, 2, at("delayed")), add.s(10, at("delayed")).set(countdown=0.5, priority=9)).delay()

    assert (answer(passing), answer(passing.parent), answer(passing.parent.parent)) == (113, 13, 3)
    assert lines(tmp_path / "passing") == ["3 1", "13 1", "113 1"]
    assert answer(keeping) == 130
    assert lines(tmp_path / "keeping") == ["3 1", "30 1", "130 1"]
    assert answer(grouped) == [0, 2, 4, 6]
    assert sorted(lines(tmp_path / "grouped")) == ["0 1", "2 1", "4 1", "6 1"]
    assert answer(fanned) == [12, 22]
    assert answer(plain_last) == "by an ordinary task"
    assert answer(plain_first) == "by a durable task"
    assert answer(plain_between) == "by the third"
    assert answer(delayed) == 13
    assert JobRun.objects.get(pk=delayed.id).priority == 9
    assert answer(linked) == 3
    with pytest.raises(ValueError, match="this part breaks"):
        answer(broken)
    with pytest.raises(ValueError, match="this part breaks"):
        answer(stopped.parent)
    wait_until(nothing_is_left, 30, "every follower")
    assert lines(tmp_path / "linked") == ["3 1", "13 1"]
    assert JobRun.objects.get(task=echo.name).result == "immutable"
    assert lines(tmp_path / "broken") == ["broken 7", f"dead {broken.id}"]
    assert lines(tmp_path / "stopped") == ["3 1", "broken 3"]
    assert (stopped.state, ends(breaking)) == ("PENDING", [("dead", "failed", 1)] * 2)
    assert not JobRun.objects.filter(pk=stopped.id).exists()
    followers = JobRun.objects.exclude(triggered_by="")
    known = {f"run {pk}" for pk in JobRun.objects.values_list("pk", flat=True)}
    assert {each.triggered_by for each in followers} <= known


@pytest.mark.parametrize("broker", ["postgres", pytest.param("rabbitmq", marks=pytest.mark.proof)], indirect=True)
def test_a_chain_whose_worker_dies_between_finish_and_ack_of_each_part_runs_each_once(
    run: Programs, broker: str, notes: Path, tmp_path: Path
) -> None:
    armed = tmp_path / "armed"
    after_finish = trap("scheduler_app.worker.ledger:write", armed, when="lambda written, *_: written.done")
    run.beat(EVERYSLOT_LOOP="0.1")
    result = chain(add.s(1, 2, str(notes)), add.s(10, str(notes)), add.s(100, str(notes))).delay()
    for n in range(3):
        armed.touch()
        dies: WorkerProcess = run.worker(f"dies-{n}", before=after_finish, **MODULES)
        assert dies.wait(60) == -9, dies.log
        assert not armed.exists()
    run.worker("survivor", **MODULES).ready()
    assert answer(echo.delay("the queue goes on")) == "the queue goes on"
    wait_until(lambda: messages(broker) == 0, 60, "the end of the messages that came again")
    assert answer(result) == 113
    assert lines(notes) == ["3 1", "13 1", "113 1"]
    assert ends(add) == [("succeeded", "", 1)] * 3
    assert not Attempt.objects.exists()
