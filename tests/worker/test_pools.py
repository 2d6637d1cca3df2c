"""A worker says at its start what its pool cannot keep, and does not start on one that breaks leases."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from celery.concurrency import prefork, solo, thread
from pytest_django import Settings

from scheduler_app.checks import check_settings
from scheduler_app.core.pools import Objection, objection
from scheduler_app.worker.consumer import DurableConsumer
from scheduler_app.worker.pools import judge_pool

LOGGER = "scheduler_app.worker.pools"


def a_pool(module: str, base: type = object) -> Any:
    """An object whose class says that it comes from there; gevent and eventlet need not be installed."""
    return type("TaskPool", (base,), {"__module__": module})()


def bare(pool: type) -> Any:
    return pool.__new__(pool)


@pytest.mark.parametrize("name", ["gevent", "eventlet"])
def test_a_worker_on_green_threads_does_not_start_and_says_why_in_one_line(settings: Settings, name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        DurableConsumer(None, pool=a_pool(f"celery.concurrency.{name}"))
    line = ended.value.code
    assert isinstance(line, str)  # Python writes it to stderr and exits with 1
    assert "\n" not in line
    settings.CELERY_WORKER_POOL = name
    (check,) = check_settings()
    assert check.id == "everyslot.E009"
    assert check.msg in line
    assert str(check.hint) in line


@pytest.mark.parametrize(("name", "pool"), [("threads", thread.TaskPool), ("solo", solo.TaskPool)])
def test_a_worker_on_threads_or_solo_warns_in_the_words_of_the_check(
    settings: Settings, caplog: pytest.LogCaptureFixture, name: str, pool: type
) -> None:
    judge_pool(bare(pool))
    (record,) = [record for record in caplog.records if record.name == LOGGER]
    assert record.levelno == logging.WARNING
    settings.CELERY_WORKER_POOL = name
    (check,) = check_settings()
    assert check.id == "everyslot.W001"
    assert record.getMessage() == f"{check.msg}. {check.hint}"


def test_prefork_and_what_is_made_of_it_pass_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    judge_pool(bare(prefork.TaskPool))
    judge_pool(a_pool("our.pools", prefork.TaskPool))
    assert [record for record in caplog.records if record.name == LOGGER] == []


def test_what_is_made_of_a_refused_pool_is_refused() -> None:
    green = type(a_pool("celery.concurrency.gevent"))
    with pytest.raises(SystemExit):
        judge_pool(a_pool("our.pools", green))


NAMED = {
    "prefork": None,
    "processes": None,
    "celery.concurrency.prefork:TaskPool": None,
    "celery.concurrency.prefork.TaskPool": None,
    "solo": False,
    "threads": False,
    "celery.concurrency.thread:TaskPool": False,
    "our.pools:Pool": False,
    "gevent": True,
    "eventlet": True,
    "celery.concurrency.gevent:TaskPool": True,
    "celery.concurrency.eventlet.TaskPool": True,
}


@pytest.mark.parametrize(("name", "forbidden"), NAMED.items(), ids=NAMED.keys())
def test_a_pool_is_known_by_its_short_name_and_by_its_path(name: str, forbidden: bool | None) -> None:
    found: Objection | None = objection(name)
    assert (found and found.forbidden) == forbidden
