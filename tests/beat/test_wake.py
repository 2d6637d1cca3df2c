"""Waiting that ends when something happens, and not before."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import OperationalError, connection

from scheduler_app.beat.wake import Alarm, Ear

LONG = 30.0


def waited(wait: object, seconds: float) -> float:
    started = time.monotonic()
    wait(seconds)  # type: ignore[operator]
    return time.monotonic() - started


def test_a_ring_ends_a_wait_and_counts_once() -> None:
    alarm = Alarm()
    alarm.ring()
    alarm.ring()
    assert waited(alarm.wait, LONG) < LONG / 2
    assert waited(alarm.wait, 0.01) >= 0.009


def test_a_ring_from_another_thread_ends_a_wait() -> None:
    alarm = Alarm()
    threading.Thread(target=alarm.ring).start()
    assert waited(alarm.wait, LONG) < LONG / 2


def test_ringing_for_ever_never_blocks() -> None:
    alarm = Alarm()
    for _ in range(100_000):
        alarm.ring()
    alarm.clear()
    assert waited(alarm.wait, 0.01) >= 0.009


@pytest.mark.django_db(transaction=True)
class TestEar:
    def notify(self, channel: str = "everyslot_jobs") -> None:
        def send() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, '')", [channel])
            connection.close()

        thread = threading.Thread(target=send)
        thread.start()
        thread.join(10)

    def test_a_notification_ends_a_wait(self) -> None:
        ear = Ear(Alarm(), ["everyslot_jobs"])
        ear.wait(0)
        self.notify()
        assert waited(ear.wait, LONG) < LONG / 2

    def test_a_notification_that_came_during_other_statements_is_not_missed(self) -> None:
        ear = Ear(Alarm(), ["everyslot_jobs"])
        ear.wait(0)
        self.notify()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.05)")
        assert waited(ear.wait, LONG) < LONG / 2

    def test_a_session_that_begins_to_listen_does_not_wait_since_it_may_have_missed_one(self) -> None:
        ear = Ear(Alarm(), ["everyslot_jobs"])
        assert waited(ear.wait, LONG) < LONG / 2
        connection.close()
        assert waited(ear.wait, LONG) < LONG / 2

    def test_the_alarm_ends_a_wait_too(self) -> None:
        alarm = Alarm()
        ear = Ear(alarm, ["everyslot_jobs"])
        ear.wait(0)
        alarm.ring()
        assert waited(ear.wait, LONG) < LONG / 2

    def test_other_channels_are_not_heard(self) -> None:
        ear = Ear(Alarm(), ["everyslot_jobs"])
        ear.wait(0)
        self.notify("everyslot_runs")
        assert waited(ear.wait, 0.02) >= 0.019

    def test_a_new_session_listens_again(self) -> None:
        ear = Ear(Alarm(), ["everyslot_jobs"])
        ear.wait(0)
        connection.close()
        ear.wait(0)
        self.notify()
        assert waited(ear.wait, LONG) < LONG / 2

    def test_a_session_that_was_ended_is_noticed(self) -> None:
        ear = Ear(Alarm(), ["everyslot_jobs"])
        ear.wait(0)
        with connection.cursor() as cursor, pytest.raises(OperationalError):
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        with pytest.raises(Exception, match=r"clos|terminat|connection"):
            ear.wait(1)
        connection.close()

    def test_without_sessions_of_our_own_it_only_waits(self) -> None:
        ear = Ear(Alarm(), [])
        assert waited(ear.wait, 0.01) >= 0.009
