"""The scheduler that Celery's beat runs: its ticks, its end, and Celery's own entries."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from celery.beat import Service
from celery.signals import beat_init
from redbeat.schedulers import acquire_distributed_beat_lock

from scheduler_app.beat import scheduler as module
from scheduler_app.beat.scheduler import EveryslotScheduler
from tests.support.programs import wait_until

ENTRIES = {"often": {"task": "tests.ping", "schedule": timedelta(seconds=0.01)}}


class Duties:
    """Stands for the loops, which have tests of their own."""

    def __init__(self, *_: Any) -> None:
        self.leading = False
        self.started = self.stopped = 0

    def start(self) -> None:
        self.started += 1

    def stop(self) -> None:
        self.stopped += 1

    def wake(self) -> None:
        return


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("test", broker="memory://", set_as_current=False)
    app.conf.beat_schedule = ENTRIES
    app.conf.beat_max_loop_interval = 0.01
    app.conf.result_expires = None
    yield app
    app.close()


@pytest.fixture
def scheduler(app: Celery, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[EveryslotScheduler]:
    monkeypatch.setattr(module, "Duties", Duties)
    settings.EVERYSLOT = settings.EVERYSLOT | {"redis_url": ""}  # the gate has tests of its own
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    found = EveryslotScheduler(app)
    yield found
    found.close()
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def sent(app: Celery, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(app, "send_task", lambda name, *_, **__: names.append(name))
    return names


def ticks(scheduler: EveryslotScheduler, number: int = 5) -> Duties:
    for _ in range(number):
        assert scheduler.tick() == 0
    duties = scheduler._duties
    assert isinstance(duties, Duties)
    return duties


def test_a_tick_returns_zero_and_the_loops_start_once(scheduler: EveryslotScheduler) -> None:
    assert ticks(scheduler).started == 1


def test_static_entries_fire_from_the_leader_only(scheduler: EveryslotScheduler, sent: list[str]) -> None:
    duties = ticks(scheduler)
    assert sent == []
    duties.leading = True
    wait_until(lambda: scheduler.tick() or sent, 10, "the entry to fire")
    assert set(sent) == {"tests.ping"}
    duties.leading = False
    ticks(scheduler, 1)
    before = len(sent)
    ticks(scheduler)
    assert len(sent) == before


def test_an_entry_that_cannot_be_sent_does_not_end_the_beat(
    app: Celery, scheduler: EveryslotScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(app, "send_task", fail)
    ticks(scheduler).leading = True
    ticks(scheduler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_next_tick_and_not_the_running_one(scheduler: EveryslotScheduler, number: int) -> None:
    ticks(scheduler)
    signal.raise_signal(number)
    with pytest.raises(SystemExit) as ended:
        scheduler.tick()
    assert ended.value.code == 0


def test_closing_stops_the_loops_once_and_never_raises(
    scheduler: EveryslotScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    duties = ticks(scheduler)
    monkeypatch.setattr(duties, "stop", lambda: 1 / 0)
    scheduler.close()
    scheduler.close()
    assert scheduler._duties is None


def test_the_service_ends_by_itself_after_a_signal(app: Celery, scheduler: EveryslotScheduler) -> None:
    service = Service(app, max_interval=0.01)
    service.__dict__["scheduler"] = scheduler
    ticks(scheduler)
    scheduler._on_signal(signal.SIGTERM, None)
    service.start()
    assert scheduler._duties is None


def test_redbeat_does_not_acquire_its_lock_by_itself() -> None:
    assert not beat_init.disconnect(acquire_distributed_beat_lock), "it is not connected any more"


def test_the_options_for_redis_reach_redbeat_by_their_plain_names(app: Celery, settings: Any) -> None:
    settings.EVERYSLOT = settings.EVERYSLOT | {"redis_url": "redis://127.0.0.1/0"}
    app.conf.update(redbeat_redis_url="redis://127.0.0.1/0", redbeat_redis_options={"socket_timeout": 1.0})
    EveryslotScheduler(app)
    assert app.redbeat_conf.is_key_in_conf("redbeat_redis_options")
    assert app.redbeat_conf.redis_url == "redis://127.0.0.1/0"


def test_without_redis_nothing_is_said_about_it(scheduler: EveryslotScheduler, caplog: Any) -> None:
    ticks(scheduler)
    assert "redbeat" not in caplog.text.lower()
