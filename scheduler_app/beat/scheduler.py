"""`celery -A config beat`: RedBeat's scheduler, which fires Celery's own entries, around our loops (duties.py).

Guaranteed: `tick` returns within a second or so and never raises for what a service does; SIGTERM and SIGINT only
set a flag, so that nothing is cut in two; the term and the Redis lock are free when the process has ended.
Static `beat_schedule` entries fire from the leader only. They have no slot promise: with Redis away they pause.
"""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

from celery.beat import Scheduler
from celery.signals import beat_init
from django.db import close_old_connections
from redbeat.schedulers import RedBeatScheduler, acquire_distributed_beat_lock

from scheduler_app.beat.duties import Duties
from scheduler_app.beat.gate import OpenGate, RedisGate
from scheduler_app.beat.term import new_holder
from scheduler_app.beat.wake import Alarm
from scheduler_app.conf import conf

logger = logging.getLogger("everyslot.beat")

# RedBeat looks for these by their plain names only, and ignores the timeouts when they come as `CELERY_REDBEAT_…`.
REDBEAT_SETTINGS = ("redbeat_redis_url", "redbeat_redis_options")

NO_REDIS = "redis://"  # never connected to; without an address RedBeat warns that it would take the broker's

# RedBeat's own acquisition blocks the process, and its failure leaves a scheduler that dies at its first tick.
beat_init.disconnect(acquire_distributed_beat_lock)


def _connect_once(scheduler: Scheduler) -> Any:
    """One try: Celery's own patience (100 tries) would keep the main thread from seeing a signal for minutes."""
    return scheduler.connection.ensure_connection(max_retries=0)


class MemoryScheduler(Scheduler):
    """Celery's entries without Redis."""

    _ensure_connected = _connect_once


class EveryslotScheduler(RedBeatScheduler):
    """Without `REDIS_URL` nothing here touches Redis, and static entries are kept in memory."""

    lock_key: str | None
    _ensure_connected = _connect_once

    def __init__(self, app: Any, **kwargs: Any) -> None:
        self._redis = bool(conf().redis_url)
        self._memory: Scheduler | None = None
        self._installed = False
        self._paused = False
        self._duties: Duties | None = None
        self._gate_thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._alarm = Alarm()
        self._asked_to_stop = False
        for name in REDBEAT_SETTINGS:
            if (value := app.conf.get(name)) is not None:
                app.conf[name] = value
        if not self._redis:
            app.conf.redbeat_redis_url = NO_REDIS
        super().__init__(app, **kwargs)

    # -- the main thread's loop

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Fire what Celery's own entries want, wait a little, return 0; SystemExit(0) once asked to stop."""
        if self._duties is None:
            self._begin()
        pause = self.max_interval
        if self._duties is not None and self._duties.leading:
            pause = min(pause, self._tick_static())
        else:
            self._forget_static()
        if not self._asked_to_stop:
            self._alarm.wait(min(1.0, max(pause, 0.0)))
        if self._asked_to_stop:
            raise SystemExit(0)
        return 0.0

    def close(self) -> None:
        """Stop the loops, free the term and the Redis lock; never raises."""
        duties, self._duties = self._duties, None
        try:
            self._stopping.set()
            if duties is not None:
                duties.stop()
            if self._gate_thread is not None:
                self._gate_thread.join(4.0)
            self.lock = None
            Scheduler.close(self)
        except Exception:
            logger.warning("could not close cleanly", exc_info=True)

    def _begin(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        gate = self._make_gate()
        self._duties = Duties(new_holder(), gate, self._alarm.ring)
        self._duties.start()
        if isinstance(gate, RedisGate):
            self._gate_thread = threading.Thread(
                target=gate.run, args=(self._stopping,), name="everyslot-gate", daemon=True
            )
            self._gate_thread.start()

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self._asked_to_stop = True
        self._alarm.ring()

    def _make_gate(self) -> OpenGate | RedisGate:
        if not self._redis or not self.lock_key:
            return OpenGate()
        return RedisGate(self.app, self.lock_key, float(self.lock_timeout), self._healthy, self._wake)

    def _healthy(self) -> bool:
        """Whether the recording loop has had an answer from PostgreSQL of late."""
        return self._duties is not None and self._duties.in_contact(float(self.lock_timeout))

    def _wake(self) -> None:
        if self._duties is not None:
            self._duties.wake()

    # -- Celery's own entries

    def setup_schedule(self) -> None:
        """Nothing at start: a standby must not rewrite the entries of a leader with other code."""

    def _tick_static(self) -> float:
        """Fire due static entries; seconds until the next one."""
        close_old_connections()  # an entry may be one of our tasks, whose run is inserted from this thread
        try:
            pause = self._tick_redbeat() if self._redis else self._in_memory().tick()
        except Exception as error:
            if not self._paused:
                logger.warning("Celery's own entries pause: %s", error)
            self._paused = True
            return float(self.max_interval)
        self._paused = False
        return float(pause)

    def _tick_redbeat(self) -> float:
        """RedBeat's tick without its lock, which the gate keeps."""
        if not self._installed:
            RedBeatScheduler.setup_schedule(self)
            self._installed = True
        key, self.lock_key = self.lock_key, None
        try:
            return float(super().tick())
        finally:
            self.lock_key = key

    def _in_memory(self) -> Scheduler:
        if self._memory is None:
            self._memory = MemoryScheduler(self.app, max_interval=self.max_interval)
        return self._memory

    def _forget_static(self) -> None:
        """A new leader begins afresh, so that a former one does not fire what has been fired meanwhile."""
        self._memory = None
        self._installed = False

    @property
    def info(self) -> str:
        """What `celery beat` prints at its start."""
        gate = f"Redis lock `{self.lock_key}`, then the term row" if self._redis else "the term row"
        return f"       . election -> {gate}"
