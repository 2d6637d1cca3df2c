"""The ledger: the thread of the worker's parent that claims and finishes.

It gathers for a few milliseconds what arrived and what ended, and writes both as one statement each in one commit. The
event loop never waits for it, and no message is acknowledged before the commit that makes it superfluous. It claims
only what the pool will start at once: free slots, plus a few milliseconds' worth of tasks known to be short, so that
"running" is true. Without a database it keeps what it has and tries again; unacknowledged messages then fill the
prefetch window, and the broker sends no more.

What would break it: acknowledging before the commit (of the finish; of the claim where a task is `long_running`);
claiming more than will start; a finish without its fence.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from celery.utils.log import get_logger
from django.db import DataError, Error, IntegrityError, OperationalError, connection

from scheduler_app.conf import conf
from scheduler_app.core.outcome import Ending, Way
from scheduler_app.instrument import emit
from scheduler_app.lifecycle.bury import Letter, bury, bury_apart
from scheduler_app.lifecycle.claim import Written, write, write_apart
from scheduler_app.lifecycle.defer import Unknown, defer, defer_apart
from scheduler_app.store.work import Claimed, Finish, Wanted
from scheduler_app.worker.vital import vital_thread

if TYPE_CHECKING:
    from scheduler_app.worker.request import DurableRequest

T = TypeVar("T")
S = TypeVar("S")
logger = get_logger(__name__)
# Seconds of known-short work that may wait claimed, a pool process: what the pool does while one batch is written.
HORIZON_LEAST, HORIZON_MOST = 0.008, 0.050
LONG = 4 * HORIZON_MOST  # seconds after which a run is long, whatever its task took before
LEARNING = 0.2  # weight of the newest run time in a task's average
BATCH = 500
RETRY_FIRST, RETRY_MOST = 0.1, 2.0  # seconds between tries while the database is away


@dataclass(slots=True)
class Delivery:
    """A message that names a run. `start`, `acknowledge` are called on the event loop."""

    wanted: Wanted
    task: str
    start: Callable[[Claimed, UUID], DurableRequest]
    acknowledge: Callable[[], None]


@dataclass(slots=True)
class Ended:
    request: DurableRequest
    ending: Ending


class Ledger:
    """One per worker process. `name` is the worker's, `slots` is the number of pool processes, `submit` hands a request
    to the pool, `on_loop` runs a callable on the event loop."""

    def __init__(
        self,
        name: str,
        slots: Callable[[], int],
        submit: Callable[[Any], None],
        on_loop: Callable[[Callable[[], None]], None],
    ) -> None:
        self.worker = UUID(int=0)
        self._name = name
        self._slots = slots
        self._pool_submit = submit
        self._on_loop = on_loop
        self._inbox: deque[Delivery] = deque()
        self._ended: deque[Ended] = deque()
        self._claiming: int = 0
        self._running: dict[UUID, DurableRequest] = {}
        self._unsettled: dict[UUID, int] = {}
        self.ending = threading.Lock()  # held to end an attempt, and to kill the child that works on it
        self._letters: deque[tuple[Letter, Callable[[], None]]] = deque()
        self._unknown: deque[tuple[Unknown, Callable[[bool], None]]] = deque()
        self._open = threading.Event()
        self._seconds: dict[str, float] = {}
        self._horizon = HORIZON_LEAST
        self._wake = threading.Event()
        self._outbox: deque[Callable[[], None]] = deque()
        self._closed_to_claims = False
        self._stopping = False
        self._thread = vital_thread("everyslot-ledger", self._run)

    # Called on the event loop.

    def start(self) -> None:
        self._thread.start()

    def offer(self, delivery: Delivery) -> None:
        """A hint arrived; it is claimed when the pool has room."""
        self._inbox.append(delivery)
        self._wake.set()

    def finish(self, request: DurableRequest, ending: Ending) -> None:
        """An attempt ended; its slot is free at once, its message is settled after the commit."""
        self._running.pop(request.claim.run_id, None)
        self._ended.append(Ended(request, ending))
        self._wake.set()

    def forget(self, request: DurableRequest) -> None:
        """An attempt that wrote its own ending; its slot is free."""
        self._running.pop(request.claim.run_id, None)
        self._unsettled.pop(request.claim.run_id, None)
        self._wake.set()

    def learn(self, task: str, seconds: float) -> None:
        """How long a task takes, so that short ones may be claimed a little ahead."""
        known = self._seconds.get(task)
        self._seconds[task] = seconds if known is None else known + LEARNING * (seconds - known)

    def drop_deliveries(self) -> None:
        """The broker connection is gone: what was not claimed will come again, what did not start is given back."""
        self._inbox.clear()
        self.give_back_unstarted()

    def give_back_unstarted(self) -> None:
        for request in list(self._running.values()):
            if not request.hold_in_pool():
                request.end(Way.GIVEN_BACK)

    def close_to_claims(self) -> None:
        """From now on nothing new is claimed; finishing goes on."""
        self._closed_to_claims = True
        self._inbox.clear()

    def stop(self, timeout: float) -> bool:
        """Write what is left and end the thread; False if it could not within `timeout` seconds."""
        self.close_to_claims()
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)
        self.drain()
        return not self._thread.is_alive()

    def drain(self) -> None:
        """Run what the ledger's thread left for the event loop."""
        while self._outbox:
            self._outbox.popleft()()

    def bury(self, letter: Letter, acknowledge: Callable[[], None]) -> None:
        """A dead message arrived; it is acknowledged once it is noted."""
        self._letters.append((letter, acknowledge))
        self._wake.set()

    def defer(self, unknown: Unknown, settle: Callable[[bool], None]) -> None:
        """A hint of a task that is not known here; `settle` is told on the event loop whether its run is real."""
        self._unknown.append((unknown, settle))
        self._wake.set()

    # Called from the keeper's thread.

    def open_for(self, worker: UUID) -> None:
        """From now on claim under this name; what was claimed before keeps the name it was claimed under."""
        self.worker = worker
        self._open.set()
        self._wake.set()

    def unsettled(self) -> dict[UUID, int]:
        """Run and attempt of everything claimed whose ending is not committed yet (a copy)."""
        return dict(self._unsettled)

    def in_pool(self) -> list[DurableRequest]:
        """What was handed to the pool and has not ended (a copy)."""
        return list(self._running.values())

    def working_on(self, run_id: UUID, attempt: int) -> DurableRequest | None:
        """The request of an attempt that is in the pool."""
        request = self._running.get(run_id)
        return request if request is not None and request.claim.attempt == attempt else None

    # The ledger's own thread.

    def _run(self) -> None:
        try:
            while not (self._stopping and not self._ended and not self._letters):
                self._wake.wait(1.0)
                if len(self._inbox) + len(self._ended) > 1 or self._running:
                    time.sleep(conf().gather)
                self._wake.clear()
                self._turn()
        finally:
            connection.close()

    def _turn(self) -> None:
        ended = [self._ended.popleft() for _ in range(min(len(self._ended), BATCH))]
        deliveries = self._choose()
        if ended or deliveries:
            began = time.monotonic()
            worker, written = self._persist(ended, deliveries)
            took = time.monotonic() - began + conf().gather
            self._horizon += LEARNING * (min(HORIZON_MOST, max(HORIZON_LEAST, 2 * took)) - self._horizon)
            self._outbox.append(lambda: self._apply(worker, written, ended, deliveries))
            self._on_loop(self.drain)
        if self._letters:
            self._bury_letters()
        if self._unknown:
            self._defer_unknown()
        if self._ended:
            self._wake.set()

    def _bury_letters(self) -> None:
        taken = self._take(self._letters, bury, bury_apart)
        self._outbox.extend(acknowledge for _, acknowledge in taken)
        self._on_loop(self.drain)

    def _defer_unknown(self) -> None:
        real: set[UUID] = set()
        taken = self._take(
            self._unknown,
            lambda hints: real.update(defer(hints, self._name)),
            lambda hints: real.update(defer_apart(hints, self._name)),
        )
        self._outbox.extend(partial(settle, unknown.run_id in real) for unknown, settle in taken)
        self._on_loop(self.drain)

    def _take(
        self,
        waiting: deque[tuple[T, S]],
        write_all: Callable[[list[T]], object],
        write_each: Callable[[list[T]], object],
    ) -> list[tuple[T, S]]:
        """What could be written of what waits, one by one if PostgreSQL refused a value; nothing while it is away."""
        taken = [waiting.popleft() for _ in range(min(len(waiting), BATCH))]
        first = [each for each, _ in taken]
        try:
            try:
                write_all(first)
            except DataError:
                write_each(first)
        except Error as error:
            logger.warning("the database is away, %d messages wait for it: %s", len(taken), error)
            connection.close()
            waiting.extendleft(reversed(taken))
            return []
        return taken

    def _choose(self) -> list[Delivery]:
        """The deliveries that the pool would start at once."""
        if self._closed_to_claims or not self._open.is_set():
            return []
        slots = self._slots()
        running = list(self._running.values())
        busy = len(running) + self._claiming
        # In the order of their claims: what is long was claimed for a free slot, so it stands among the first.
        spare = self._horizon * (slots - sum(map(self._is_long, running[:slots]))) - sum(
            self._seconds.get(request.task.name, self._horizon) for request in running[slots:]
        )
        chosen: list[Delivery] = []
        while self._inbox and len(chosen) < BATCH:
            if busy >= slots:
                seconds = self._seconds.get(self._inbox[0].task)
                if seconds is None or seconds > spare:
                    break
                spare -= max(seconds, 0.0001)
            busy += 1
            try:
                chosen.append(self._inbox.popleft())
            except IndexError:  # the event loop dropped the deliveries meanwhile
                break
        self._claiming += len(chosen)
        return chosen

    def _is_long(self, request: DurableRequest) -> bool:
        """Whether its slot may not be free soon: nothing is claimed ahead for it, lest it wait there as "running"."""
        late = request.accepted is not None and time.monotonic() - request.accepted > LONG
        return late or self._seconds.get(request.task.name, LONG) > self._horizon

    def _persist(self, ended: Sequence[Ended], deliveries: Sequence[Delivery]) -> tuple[UUID, Written]:
        """Write the batch, however long the database is away."""
        finishes = [self._as_finish(each) for each in ended]
        # Doubles once; a stale hint stays beside the current one and must not take its place.
        wanted = list(dict.fromkeys(d.wanted for d in deliveries))
        pause, apart = RETRY_FIRST, ""
        while True:
            worker = self.worker
            try:
                if apart:
                    return worker, write_apart(worker, finishes, wanted, apart)
                return worker, write(worker, finishes, wanted)
            except DataError as error:
                apart = str(error)
            except IntegrityError:
                # Two workers took the same concurrency key at once; the next try sees who has it.
                logger.debug("a claim met a concurrent one; trying again", exc_info=True)
            except (OperationalError, Error) as error:
                logger.warning("the database is away, %d finishes wait: %s", len(finishes), error)
                emit("ledger.waiting", finishes=len(finishes), claims=len(wanted), error=str(error))
                connection.close()
                if self._stopping and pause >= RETRY_MOST:
                    raise
                time.sleep(pause)
                pause = min(RETRY_MOST, pause * 2)

    def _as_finish(self, each: Ended) -> Finish:
        claim = each.request.claim
        return Finish(claim.run_id, claim.attempt, each.request.worker, each.ending)

    # Back on the event loop.

    def _apply(self, worker: UUID, written: Written, ended: Sequence[Ended], deliveries: Sequence[Delivery]) -> None:
        for each in ended:
            run_id = each.request.claim.run_id
            if self._unsettled.get(run_id) == each.request.claim.attempt:
                del self._unsettled[run_id]
            each.request.settle_message(each.ending, run_id in written.done)
        self._claiming -= len(deliveries)
        started: set[UUID] = set()
        for delivery in deliveries:
            claim = written.claimed.get(delivery.wanted.run_id)
            if claim is None or claim.run_id in started:
                delivery.acknowledge()
                continue
            started.add(claim.run_id)
            request = delivery.start(claim, worker)
            if request.long_running:
                request.acknowledge()  # the claim is committed: from now on the lease alone tells of its death
            self._running[claim.run_id] = request
            self._unsettled[claim.run_id] = claim.attempt
            if self._closed_to_claims:
                request.end(Way.GIVEN_BACK)
            elif request.refusal:
                way, why = request.refusal
                request.end(way, last=True, error=why)
            else:
                self._submit(request)
        if self._inbox:
            self._wake.set()

    def _submit(self, request: DurableRequest) -> None:
        try:
            self._pool_submit(request)
        except Exception as error:
            logger.exception("the pool refused run %s", request.id)
            request.end(Way.GIVEN_BACK, error=f"the pool refused it: {error}")
