"""The keeper: the thread that holds the worker's lease, with a connection of its own.

One UPDATE a heartbeat says that this worker lives; a slow statement of the ledger cannot delay it, and neither can a
task that holds the interpreter lock, since tasks run in other processes. If the row is gone (the reaper declared this
worker dead while it was frozen), the attempts of the old name are lost and the keeper starts over under a new name.
What runs under this worker's name but is unknown here for two heartbeats (a claim whose commit was never heard of)
ends as lost. What was asked to stop and did not within the grace is killed; Celery's revoke plays no part.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from uuid import UUID

from celery.utils.log import get_logger
from django.db import Error, OperationalError, connection

from scheduler_app.conf import conf
from scheduler_app.core.outcome import Way
from scheduler_app.lifecycle.keep import Identity, close_lease, open_lease, renew_lease, running_now
from scheduler_app.lifecycle.lose import lose_runs
from scheduler_app.models.ids import new_id
from scheduler_app.worker.hung import HungChildren
from scheduler_app.worker.ledger import Ledger
from scheduler_app.worker.vital import vital_thread

logger = get_logger(__name__)
RETRY_SECONDS = 0.5


class Keeper:
    """One per worker process."""

    def __init__(self, me: Identity, ledger: Ledger, on_loop: Callable[[Callable[[], None]], None]) -> None:
        self.me = me
        self._ledger = ledger
        self._hung = HungChildren(on_loop)
        self._look_again = math.inf  # seconds until a grace is over
        self._stop = threading.Event()
        self._suspects: dict[UUID, int] = {}
        self._thread = vital_thread("everyslot-keeper", self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the lease; called after the ledger's last finish."""
        self._stop.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        opened = False
        try:
            while not self._stop.is_set():
                try:
                    opened = self._beat(opened)
                    wait = min(conf().heartbeat, self._look_again) if opened else 0.0
                except Error as error:
                    logger.warning("the database is away, the lease of %s is not renewed: %s", self.me.name, error)
                    connection.close()
                    opened, wait = False, RETRY_SECONDS
                self._stop.wait(wait)
            self._close()
        finally:
            connection.close()

    def _beat(self, opened: bool) -> bool:
        """Renew, or open the lease again after a lost session; False if a new name must be opened at once."""
        if not (renew_lease(self.me.id) if opened else open_lease(self.me)):
            self._start_over()
            return False
        if not opened:
            self._ledger.open_for(self.me.id)
        else:
            self._hung.look(self._ledger.in_pool())
            self._reconcile()
        return True

    def _start_over(self) -> None:
        logger.warning("worker %s was declared dead while it did not answer; it goes on under a new name", self.me.id)
        self.me = replace(self.me, id=new_id())
        self._suspects.clear()

    def _reconcile(self) -> None:
        mine = self._ledger.unsettled()
        rows = running_now(self.me.id)
        unknown = {run_id: attempt for run_id, attempt, _ in rows if mine.get(run_id) != attempt}
        confirmed = [run_id for run_id, attempt in unknown.items() if self._suspects.get(run_id) == attempt]
        self._suspects = unknown
        if confirmed:
            self._lose(confirmed)
        asked = {(run_id, attempt): seconds for run_id, attempt, seconds in rows if seconds is not None}
        self._look_again = self._stop_overdue(asked) if asked else math.inf

    def _stop_overdue(self, asked: Mapping[tuple[UUID, int], float]) -> float:
        """Kill what was asked to stop longer than the grace ago; seconds until the next grace is over."""
        left = {each: conf().cancel_grace - seconds for each, seconds in asked.items()}
        for run_id, attempt in (each for each, seconds in left.items() if seconds <= 0):
            request = self._ledger.working_on(run_id, attempt)
            if request is not None and request.kill_child():
                logger.warning("run %s was asked to stop %.0f s ago: killed", run_id, asked[run_id, attempt])
        return min((seconds for seconds in left.values() if seconds > 0), default=math.inf)

    def _lose(self, runs: list[UUID]) -> None:
        """What a transaction of somebody else holds just now is left for the next heartbeat."""
        try:
            lose_runs(self.me.id, runs, "its claim was committed but never heard of")
        except OperationalError as error:
            if not connection.is_usable():
                raise
            logger.warning("%d lost runs are locked, and end later: %s", len(runs), error)

    def _close(self) -> None:
        try:
            left = [run_id for run_id, _, _ in running_now(self.me.id)]
            if left:
                lose_runs(self.me.id, left, "the worker was stopped", Way.STOPPED)
            close_lease(self.me.id, "stopped")
        except Error as error:
            logger.warning("the database is away, the lease of %s ends by itself: %s", self.me.name, error)
