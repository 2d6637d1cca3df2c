"""RedBeat's lock as a gate, on a real Redis: held, lost, stolen, silent, and left behind by a lost answer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest
from celery import Celery
from redis import Redis
from redis.exceptions import RedisError

from scheduler_app.beat.gate import OpenGate, RedisGate, State
from tests.support.missing import without

KEY = "redbeat:test:lock"
LIFETIME = 5.0


@pytest.fixture
def redis() -> Iterator[Redis]:
    url = os.environ.get("TEST_REDIS_URL") or os.environ.get("REDIS_URL", "")
    if not url:
        without("Redis is needed: `make test` starts it, or set REDIS_URL")
    client = Redis.from_url(url)
    client.delete(KEY)
    yield client
    client.delete(KEY)
    client.close()


class Beat:
    """A gate with its own client, and what it would tell the beat."""

    def __init__(self, url: str) -> None:
        self.healthy = True
        self.changes = 0
        app = Celery("test", set_as_current=False)
        app.conf.redbeat_redis_url = url
        app.conf.redbeat_redis_options = {"socket_timeout": 0.2, "socket_connect_timeout": 0.2}
        self.gate = RedisGate(app, KEY, LIFETIME, lambda: self.healthy, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def step(self) -> State:
        self.gate.step()
        return self.gate.state


def url_of(redis: Redis) -> str:
    has = redis.connection_pool.connection_kwargs
    login = f":{has['password']}@" if has.get("password") else ""
    return f"redis://{login}{has['host']}:{has['port']}/{has['db']}"


@pytest.fixture
def beats(redis: Redis) -> list[Beat]:
    return [Beat(url_of(redis)) for _ in range(2)]


def test_the_first_gets_the_lock_and_the_second_stands_by(beats: list[Beat]) -> None:
    first, second = beats
    assert (first.step(), second.step()) == (State.HELD, State.ELSEWHERE)
    assert first.gate.may_contend()
    assert first.gate.may_lead()
    assert not second.gate.may_contend()
    assert not second.gate.may_lead()


def test_the_lock_is_extended_to_its_whole_lifetime(redis: Redis, beats: list[Beat]) -> None:
    beats[0].step()
    redis.pexpire(KEY, 500)
    beats[0].step()
    assert 4000 < redis.pttl(KEY) <= 5000


def test_a_released_lock_goes_to_the_next(beats: list[Beat]) -> None:
    first, second = beats
    first.step()
    second.step()
    first.gate.release()
    assert second.step() is State.HELD


def test_a_stolen_lock_means_standby(redis: Redis, beats: list[Beat]) -> None:
    first, _ = beats
    first.step()
    redis.set(KEY, "thief", px=60_000)
    assert first.step() is State.ELSEWHERE
    assert first.changes == 2
    first.gate.release()
    assert redis.get(KEY) == b"thief", "only our own lock is released"


def test_an_emptied_redis_is_taken_again(redis: Redis, beats: list[Beat]) -> None:
    first, _ = beats
    first.step()
    redis.delete(KEY)
    assert first.step() is State.HELD


def test_a_redis_that_is_away_leaves_a_leader_in_place_and_after_a_lifetime_lets_anyone_contend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        beat = Beat(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        assert beat.step() is State.UNKNOWN
        assert beat.gate.may_lead()
        assert not beat.gate.may_contend()
        monkeypatch.setattr("scheduler_app.beat.gate.time.monotonic", lambda: beat.gate._since + LIFETIME)
        assert beat.gate.may_contend()


def test_an_acquisition_whose_answer_got_lost_is_found_to_be_ours(redis: Redis, beats: list[Beat]) -> None:
    first, second = beats
    token = first.gate._token
    redis.set(KEY, token, px=5000)  # what Redis carries out late, after the client gave up
    assert second.step() is State.ELSEWHERE
    assert first.step() is State.HELD


def test_a_beat_that_cannot_reach_the_database_gives_the_lock_up(beats: list[Beat]) -> None:
    first, second = beats
    first.step()
    first.healthy = False
    assert first.step() is State.UNKNOWN
    assert second.step() is State.HELD


def test_the_thread_releases_the_lock_at_its_end(redis: Redis, beats: list[Beat]) -> None:
    stopping, held = threading.Event(), threading.Event()
    beat = beats[0]
    beat.gate._changed = held.set
    thread = threading.Thread(target=beat.gate.run, args=(stopping,))
    thread.start()
    assert held.wait(10)
    stopping.set()
    thread.join(10)
    assert redis.get(KEY) is None


def test_an_error_while_releasing_is_no_error(redis: Redis, beats: list[Beat]) -> None:
    beat = beats[0]
    beat.step()

    class Gone:
        def release(self) -> None:
            raise RedisError("gone")

    beat.gate._lock = Gone()
    beat.gate.release()


def test_without_redis_the_gate_is_open() -> None:
    assert OpenGate().may_contend()
    assert OpenGate().may_lead()
