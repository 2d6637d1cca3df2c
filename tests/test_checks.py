"""System checks: each rule once broken and once kept."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.checks import run_checks
from django.db import connections
from pytest_django import Settings

from scheduler_app import checks
from scheduler_app.checks import TAG, check_jobs, check_redis, check_settings, check_tasks
from scheduler_app.conf import conf
from scheduler_app.lifecycle import catalog
from scheduler_app.lifecycle.loading import load_tasks
from scheduler_app.local.service import CannotHave
from scheduler_app.local.services import Services
from scheduler_app.models import Job
from tests.support.definitions import a_job, known_tasks, options
from tests.support.missing import without

AMQP = "amqp://guest@127.0.0.1//"


def ids(messages: list[Any]) -> list[str]:
    assert all(message.hint for message in messages)
    return [message.id.removeprefix("everyslot.") for message in messages]


def test_every_rule_is_broken_here() -> None:
    rules = set(re.findall(r"\b[EW]\d{3}\b", checks.__doc__ or ""))
    here = Path(__file__).read_text(encoding="utf-8")
    assert len(rules) >= 14
    assert {rule for rule in rules if f'"{rule}"' not in here} == set()


def test_the_settings_as_they_are_have_no_fault() -> None:
    assert check_settings() == []
    assert check_tasks() == []


OURS = {
    "E001": {"heartbeat": 11.0, "lease": 30.0},
    "E005": {"soft_shutdown": 60.0, "stop_grace": 60.0},
    "E006": {"term": 2.0},
}


@pytest.mark.parametrize(("number", "changes"), OURS.items(), ids=OURS.keys())
def test_a_rule_between_our_settings(settings: Settings, number: str, changes: dict[str, float]) -> None:
    settings.EVERYSLOT = settings.EVERYSLOT | changes
    assert ids(check_settings()) == [number]


THEIRS = {
    "another zone of Django": ("TIME_ZONE", "Europe/Berlin", "E007"),
    "no zones at all": ("USE_TZ", False, "E007"),
    "another zone of Celery": ("CELERY_TIMEZONE", "Europe/Berlin", "E007"),
    "Celery without a zone": ("CELERY_TIMEZONE", None, "E007"),
    "early acknowledging": ("CELERY_TASK_ACKS_LATE", False, "E008"),
    "gevent": ("CELERY_WORKER_POOL", "gevent", "E009"),
    "eventlet by its path": ("CELERY_WORKER_POOL", "celery.concurrency.eventlet:TaskPool", "E009"),
    "solo": ("CELERY_WORKER_POOL", "solo", "W001"),
    "threads": ("CELERY_WORKER_POOL", "threads", "W001"),
    "prefork": ("CELERY_WORKER_POOL", "prefork", ""),
    "connections for each task": ("CELERY_DB_REUSE_MAX", None, "W002"),
}


@pytest.mark.parametrize(("name", "value", "number"), THEIRS.values(), ids=THEIRS.keys())
def test_a_rule_on_settings_of_others(settings: Settings, name: str, value: object, number: str) -> None:
    setattr(settings, name, value)
    assert ids(check_settings()) == ([number] if number else [])


def test_another_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connections["default"]), "vendor", "sqlite")
    found = check_settings()
    assert ids(found) == ["E010"]
    assert "sqlite" in found[0].msg


def test_redbeats_lock_counts_where_redis_is_used(settings: Settings) -> None:
    settings.CELERY_REDBEAT_LOCK_TIMEOUT = 2.0
    settings.EVERYSLOT = settings.EVERYSLOT | {"redis_url": ""}
    assert check_settings() == []
    settings.EVERYSLOT = settings.EVERYSLOT | {"redis_url": "redis://127.0.0.1:1/0"}
    assert ids(check_settings()) == ["E006"]


def test_a_task_that_may_outlive_rabbitmqs_patience(settings: Settings) -> None:
    settings.EVERYSLOT = settings.EVERYSLOT | {"consumer_timeout": 1800.0}
    with known_tasks(options(time_limit=1800)):
        settings.CELERY_BROKER_URL = AMQP
        found = check_tasks()
        assert ids(found) == ["E002"]
        assert "tests.report may run 1800 s" in found[0].msg
        settings.CELERY_BROKER_URL = "pgq+postgresql://x/y"
        assert check_tasks() == []


def test_no_task_that_comes_along_outlives_a_rabbitmq_as_it_comes(settings: Settings) -> None:
    settings.CELERY_BROKER_URL = AMQP
    assert conf().consumer_timeout == 1800, "what RabbitMQ has unless it is told otherwise"
    load_tasks()
    own = [each for each in catalog.all_tasks() if each.name.startswith("tasks.")]
    with known_tasks(*own):
        assert len(own) > 10
        assert check_tasks() == []


def test_every_task_that_may_outlive_it_is_named_and_a_long_running_one_cannot(settings: Settings) -> None:
    settings.CELERY_BROKER_URL = AMQP
    known = [options(f"tests.{name}", time_limit=7200) for name in ("one", "two")]
    with known_tasks(*known, options("tests.early", time_limit=7200, long_running=True)):
        assert [message.msg.split()[2] for message in check_tasks()] == ["tests.one", "tests.two"]


def test_tasks_that_cannot_be_imported_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ModuleNotFoundError("no module named 'gone'")

    monkeypatch.setattr("scheduler_app.checks.import_tasks", broken)
    found = check_tasks()
    assert ids(found) == ["E011"]
    assert "no module named 'gone'" in found[0].msg


@pytest.mark.django_db
def test_a_job_that_may_outlive_rabbitmqs_patience(settings: Settings) -> None:
    settings.CELERY_BROKER_URL = AMQP
    with known_tasks(options()):
        a_job(time_limit=7200)
    assert ids(check_jobs(databases=["default"])) == ["E003"]
    assert check_jobs(databases=None) == []
    Job.objects.update(enabled=False)
    assert check_jobs(databases=["default"]) == []


@pytest.mark.django_db
def test_a_job_of_a_long_running_task_cannot_outlive_it(settings: Settings) -> None:
    settings.CELERY_BROKER_URL = AMQP
    with known_tasks(options(), options("tests.early", long_running=True)):
        a_job(name="early", task="tests.early", time_limit=7200)
        a_job(name="late", time_limit=7200)
        found = check_jobs(databases=["default"])
    assert [message.msg.split(" may ")[0] for message in found] == ["the job late"]


@pytest.mark.django_db
def test_before_the_first_migration_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.db.connection.introspection.table_names", list)
    assert check_jobs(databases=["default"]) == []


def test_redis_that_does_not_answer_is_a_warning(settings: Settings) -> None:
    for url in (f"redis://127.0.0.1:{_free_port()}/0", "redis-sentinel://127.0.0.1/0"):
        settings.EVERYSLOT = settings.EVERYSLOT | {"redis_url": url}
        assert ids(check_redis(databases=["default"])) == ["W004"]
        assert check_redis(databases=None) == []


def test_redis_must_not_evict_keys(settings: Settings, redis_url: str) -> None:
    settings.EVERYSLOT = settings.EVERYSLOT | {"redis_url": redis_url}
    assert check_redis(databases=["default"]) == []
    with redis.Redis.from_url(redis_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    found = check_redis(databases=["default"])
    assert ids(found) == ["E004"]
    assert "allkeys-lru" in found[0].msg


@pytest.mark.django_db
def test_manage_py_check_runs_them_under_their_tag() -> None:
    assert run_checks(tags=[TAG], databases=["default"]) == []


@pytest.fixture
def redis_url() -> Iterator[str]:
    """A Redis of this test's own, which it may set."""
    with Services(environ={}) as services:
        try:
            services.start(["redis"])
        except CannotHave as fault:
            without(str(fault))
        yield services.running["redis"].url


@pytest.mark.parametrize(("ci", "ending"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_redis_that_cannot_be_had_fails_under_ci_and_is_skipped_aloud_at_home(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, ci: str, ending: type[BaseException]
) -> None:
    monkeypatch.setattr(Services, "_find", lambda *_: None)
    monkeypatch.setenv("CI", ci)
    with pytest.raises(ending, match="Redis"):
        request.getfixturevalue("redis_url")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_the_command_line_runs_the_checks_and_loads_tasks_without_running_checks_again() -> None:
    """Celery's own way to load them runs the checks, which load them."""
    done = subprocess.run(
        [sys.executable, "manage.py", "check"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
