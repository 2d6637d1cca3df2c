"""Children of the pool that do not take up what they were given: hung before the task, where no time limit counts.

Celery counts a time limit from the moment at which a child says that it has begun. A child that hangs before (stopped,
deadlocked in a lock that was held at its fork) never says so, and its run would be `running` for ever.

Guaranteed: time counts only while the event loop turned, which reads what the children say; so a parent that was frozen
or busy does not take a good child for a hung one. The pool gives the run to another child, as the same attempt.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from celery.utils.log import get_logger

from scheduler_app.conf import conf

if TYPE_CHECKING:
    from scheduler_app.worker.request import DurableRequest

logger = get_logger(__name__)


class HungChildren:
    """Used by the keeper's thread; `on_loop` runs a callable on the event loop."""

    def __init__(self, on_loop: Callable[[Callable[[], None]], None]) -> None:
        self._on_loop = on_loop
        self._turned = False
        self._looked = 0.0
        self._seconds: dict[tuple[UUID, int], float] = {}

    def look(self, running: list[DurableRequest]) -> None:
        """Kill the children that have kept a run waiting for a lease; called once a heartbeat."""
        now = time.monotonic()
        passed = min(now - self._looked, conf().heartbeat) if self._turned else 0.0
        self._looked, self._turned = now, False
        self._on_loop(self._turn)
        waiting = {(each.claim.run_id, each.claim.attempt): each for each in running if each.waits_in_child()}
        self._seconds = {key: self._seconds.get(key, 0.0) + passed for key in waiting}
        for key, request in waiting.items():
            if self._seconds[key] > conf().lease and (child := request.kill_hung_child()):
                logger.error(
                    "child %d did not take up run %s for %.0f s: killed, another one gets the run",
                    child, key[0], self._seconds[key],
                )  # fmt: skip

    def _turn(self) -> None:
        self._turned = True
