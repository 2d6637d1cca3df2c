"""The loops of a beat, each in a thread with a database connection of its own, so that none delays another.

Guaranteed: a slow or missing broker or Redis never delays recording, and no fault of a service ends a loop: it is
noted and the step is tried again. A clean stop gives the term up before the process ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from django.db import DatabaseError, InterfaceError, connection

from scheduler_app.beat.term import Gate, Leadership
from scheduler_app.beat.wake import Alarm, Ear
from scheduler_app.conf import conf
from scheduler_app.lifecycle.dispatch import Dispatched, dispatch, redispatch
from scheduler_app.lifecycle.reap import Reaper
from scheduler_app.lifecycle.record import lift_quarantine, record, release_orphans

logger = logging.getLogger("everyslot.beat")

LOCKED_WAIT: Final = 0.05  # seconds, when all that is due is locked by another recorder
FULL_WAIT: Final = 0.2  # seconds, when a queue's window is used up: claims make room without telling
BACKOFF_MOST: Final = 5.0  # seconds between tries of a broker or database that is away
CARE_WAIT: Final = 0.5  # seconds between two looks at the workers: a death is known, and tried again, within 3 s
LIFT_EVERY: Final = 60.0  # seconds
ORPHANS_EVERY: Final = 5.0  # seconds
JOIN: Final = 4.0  # seconds a thread gets to end; its statements are bounded to 2


class Every:
    """True at most once per interval (seconds), at the first call too."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._due = 0.0

    def __call__(self) -> bool:
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + self.interval
        return True


class Loop:
    """A step that says how long to wait, repeated in a thread until the beat stops."""

    def __init__(
        self,
        name: str,
        channel: str,
        stopping: threading.Event,
        step: Callable[[], float],
        failed: Callable[[], None] = lambda: None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.alarm = Alarm()
        self._name, self._channel, self._stopping = name, channel, stopping
        self._step, self._failed, self._end = step, failed, end
        self._thread = threading.Thread(target=self._run, name=f"everyslot-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self.alarm.ring()
        if self._thread.is_alive():
            self._thread.join(JOIN)

    def _run(self) -> None:
        ear = Ear(self.alarm, [self._channel] if self._channel and conf().session_locks else [])
        failures = 0
        while not self._stopping.is_set():
            try:
                pause = self._step()
                if pause > 0 and not self._stopping.is_set():
                    ear.wait(pause)
                failures = 0
            except Exception as error:
                self._note(error)
                self._stopping.wait(min(BACKOFF_MOST, 0.1 * 2**failures))
                failures = min(failures + 1, 10)
        try:
            self._end()
        except Exception as error:
            logger.warning("%s: could not end cleanly: %s", self._name, error)
        connection.close()

    def _note(self, error: Exception) -> None:
        """Log; a session that is still usable is kept, since the session lock hangs on it."""
        if isinstance(error, DatabaseError | InterfaceError):
            logger.warning("%s: trying again: %s", self._name, str(error).strip() or type(error).__name__)
        else:
            logger.exception("%s: trying again", self._name)
        if connection.connection is None or not connection.is_usable():
            connection.close()
            self._failed()


class Duties:
    """Everything a beat does beside Celery's own entries."""

    def __init__(self, holder: str, gate: Gate, changed: Callable[[], None] = lambda: None) -> None:
        self._stopping = threading.Event()
        self._leadership = Leadership(holder, gate, self._on_change)
        self._changed = changed
        self._reaper = Reaper()
        self._newest_first = False
        self._broker_failures = 0
        self._lift_due, self._orphans_due = Every(LIFT_EVERY), Every(ORPHANS_EVERY)
        self._redispatch_due = Every(max(1.0, conf().dispatch_timeout / 12))
        self._contact = time.monotonic()
        self._record = Loop(
            "record",
            "everyslot_jobs",
            self._stopping,
            self._record_step,
            self._leadership.session_broken,
            lambda: self._leadership.resign("this beat stops"),
        )
        self._dispatch = Loop("dispatch", "everyslot_runs", self._stopping, self._dispatch_step)
        self._care = Loop("care", "", self._stopping, self._care_step)

    @property
    def leading(self) -> bool:
        return self._leadership.fence is not None

    def start(self) -> None:
        for loop in (self._record, self._dispatch, self._care):
            loop.start()

    def stop(self) -> None:
        """End the loops and give the term up; takes a few seconds at most."""
        self._stopping.set()
        for loop in (self._record, self._dispatch, self._care):
            loop.join()

    def in_contact(self, within: float) -> bool:
        """Whether recording has had an answer from the database within so many seconds."""
        return time.monotonic() - self._contact < within

    def wake(self) -> None:
        """Let the recording loop look again at whether this beat may lead."""
        self._record.alarm.ring()

    def _on_change(self) -> None:
        if self.leading:
            self._lift_due = Every(LIFT_EVERY)
            self._care.alarm.ring()
        self._dispatch.alarm.ring()
        self._changed()

    def _record_step(self) -> float:
        fence = self._leadership.step()
        pause = conf().loop
        if fence is not None:
            done = record(fence, newest_first=self._newest_first)
            ended = time.monotonic()
            if done is None:
                self._leadership.lost()
                return LOCKED_WAIT
            if done.runs:
                self._dispatch.alarm.ring()
            self._newest_first = done.more and not self._newest_first
            if done.more:
                pause = 0.0
            elif done.locked:
                pause = LOCKED_WAIT
            elif done.wait is not None:
                pause = min(pause, done.wait - (time.monotonic() - ended))
        self._contact = time.monotonic()
        return min(pause, conf().term / 3)

    def _care_step(self) -> float:
        """The dead, the orphans, the quarantined. Apart from recording, since what is dead may hold locks."""
        if self.leading:
            if self._reaper.reap():
                self._dispatch.alarm.ring()
            if self._orphans_due() and release_orphans():
                self._dispatch.alarm.ring()
            if self._lift_due() and lift_quarantine():
                self._record.alarm.ring()
        return min(conf().loop, CARE_WAIT)

    def _dispatch_step(self) -> float:
        if not self.leading:
            return conf().loop
        done = dispatch()
        if done.reached and self._redispatch_due():
            redispatch()
        return self._dispatch_pause(done)

    def _dispatch_pause(self, done: Dispatched) -> float:
        if not done.reached:
            self._broker_failures = min(self._broker_failures + 1, 10)
            self._stopping.wait(min(BACKOFF_MOST, 0.1 * 2**self._broker_failures))
            return 0.0
        self._broker_failures = 0
        if done.more or done.published:
            return 0.0
        pause = FULL_WAIT if done.full else conf().loop
        return pause if done.wait is None else min(pause, max(done.wait, LOCKED_WAIT / 10))
