"""The consumer's presence in the database: one row is the lease of every message that the connection holds.

Guaranteed: while the process lives, the row is renewed by a thread of its own, whatever the event loop does (a warm
shutdown that drains a long task included). It would break if a statement held the session's lock for a whole lease;
the session's statement timeout (15 s) forbids that for leases of 30 s and more.
The same thread sweeps for everyone: messages of dead holders return, dying ones are buried, unused queues leave. A
holder is dead when its session has ended (its advisory lock is gone), as RabbitMQ sees it by the closed connection, or
when its lease has expired: a frozen process, or a pooler in between.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from time import monotonic

import psycopg

from scheduler_app.transport import declarations, statements
from scheduler_app.transport.routing import notice_channel
from scheduler_app.transport.session import Session

logger = logging.getLogger(__name__)

PAGE = 500

# Holders of lost sessions by broker address, so that the process that reconnects need not wait for its own lease.
_abandoned: dict[str, set[int]] = {}


class Keeper:
    """Holds the lease (`lease` seconds) of a session's consumers and sweeps every `sweep` seconds."""

    def __init__(
        self,
        session: Session,
        *,
        address: str,
        lease: float,
        sweep: float,
        delivery_limit: int,
        on_lost: Callable[[], None],
    ) -> None:
        self.holder: int | None = None
        self.lost = False
        self.queues: frozenset[str] = frozenset()
        self._session = session
        self._lease = lease
        self._sweep = sweep
        self._delivery_limit = delivery_limit
        self._on_lost = on_lost
        self._bury_after = 0
        self._address = address
        self._stop = threading.Event()

    def hold(self, queues: Collection[str]) -> int:
        """Consume from exactly these queues from now on, and listen to them; the answer is the holder's number."""
        wanted = frozenset(queues)
        with self._session.lock:
            if self.holder is not None and wanted != self.queues and not self._hold_other(wanted):
                if self.queues:
                    self._lose()
                else:
                    # Nothing was consumed meanwhile, so nothing was lost but a number.
                    self._session.rows(declarations.UNLOCK, {"holder": self.holder})
                    self._forget()
            if self.holder is None:
                self._begin(wanted)
            self.queues = wanted
            self._session.listen({notice_channel(name) for name in wanted})
            return int(self.holder or 0)

    def release(self) -> None:
        """Leave; whatever is still held returns with the next sweep. A later `hold` begins anew."""
        with self._session.lock:
            if self.holder is not None:
                self._session.count(declarations.RELEASE, {"holder": self.holder})
                self._session.rows(declarations.UNLOCK, {"holder": self.holder})
                self._session.listen(())
                self._forget()

    def stop(self) -> None:
        """Renew and sweep no more. A lease that could not be released is left to this process's next session."""
        self._stop.set()
        if self.holder is not None:
            _abandoned.setdefault(self._address, set()).add(self.holder)

    def _begin(self, queues: frozenset[str]) -> None:
        self._reclaim()
        found = self._session.rows(declarations.HOLD, {"queues": sorted(queues), "lease": self._lease})
        self.holder = found[0][0]
        self._stop = threading.Event()
        threading.Thread(target=self._run, args=(self._stop,), name="everyslot transport keeper", daemon=True).start()

    def _hold_other(self, queues: frozenset[str]) -> bool:
        parameters = {"holder": self.holder, "queues": sorted(queues), "lease": self._lease}
        return not self.lost and bool(self._session.rows(declarations.HOLD_OTHER, parameters))

    def _forget(self) -> None:
        self._stop.set()
        self.holder, self.lost, self.queues = None, False, frozenset()

    def _reclaim(self) -> None:
        """Give back what this process held through sessions that it lost, without waiting for the lease to expire."""
        left = _abandoned.pop(self._address, set())
        if left:
            with self._session.transaction():
                returned = self._session.rows(
                    statements.GIVE_BACK_OF, {"holders": list(left), "delivery_limit": self._delivery_limit}
                )
                for holder in left:
                    self._session.count(declarations.RELEASE, {"holder": holder})
                reached = self._bury([id_ for id_, _queue, is_dying in returned if is_dying])
            self.notify({queue for _id, queue, is_dying in returned if not is_dying}.union(reached))

    def give_back(self, ids: Collection[int]) -> None:
        """Make held messages visible at once; those over their delivery limit go to their dead-letter exchange."""
        with self._session.transaction():
            returned = self._session.rows(
                statements.GIVE_BACK,
                {"ids": list(ids), "holder": self.holder, "delivery_limit": self._delivery_limit},
            )
            reached = self._bury([id_ for id_, _queue, is_dying in returned if is_dying])
        self.notify({queue for _id, queue, is_dying in returned if not is_dying}.union(reached))

    def reject(self, ids: Collection[int]) -> None:
        """Send held messages to their queue's dead-letter exchange."""
        with self._session.transaction():
            self._session.count(statements.REJECT, {"ids": list(ids), "holder": self.holder})
            reached = self._bury(list(ids))
        self.notify(reached)

    def notify(self, queues: Iterable[str]) -> None:
        """Wake who listens to these queues. What goes wrong here is left to polling: the messages are committed."""
        channels = sorted({notice_channel(queue) for queue in queues})
        if not channels:
            return
        try:
            self._session.rows(statements.NOTIFY, {"channels": channels})
        except psycopg.OperationalError as error:
            logger.debug("could not notify: %s", error)

    def sweep(self) -> bool:
        """Clean up after the dead; False if somebody else did within the interval."""
        run, session = {"page": PAGE, "delivery_limit": self._delivery_limit}, self._session
        with session.transaction():
            if not session.rows(declarations.BEGIN_SWEEP, {"interval": self._sweep}):
                return False
            session.count(declarations.REAP_HOLDERS)
            returned = session.rows(statements.GIVE_BACK_ORPHANS, run)
            session.count(statements.EXPIRE, run)
            retired = [name for (name,) in session.rows(declarations.RETIRE_QUEUES, {"names": None})]
            lost = [name for (name,) in session.rows(declarations.LOST_QUEUES)]
            if retired or lost:
                session.count(declarations.DELETE_MESSAGES, {"names": retired + lost})
            reached = self._bury(None)
        if returned:
            logger.warning("%d message(s) of dead consumers are visible again", len(returned))
        self.notify({queue for _id, queue, is_dying in returned if not is_dying}.union(reached))
        return True

    def _bury(self, ids: list[int] | None) -> list[str]:
        """Move dying messages on, these or the next page of all; the answer is the queues that they reached."""
        if ids is not None and not ids:
            return []
        after = 0 if ids is not None else self._bury_after
        found = self._session.rows(
            statements.BURY, {"ids": ids, "after": after, "page": PAGE if ids is None else len(ids)}
        )
        queues, dropped, waiting, next_after = found[0]
        if ids is None:
            self._bury_after = next_after
        if dropped:
            logger.warning("%d message(s) dropped: their queue has no dead-letter exchange", dropped)
        if waiting:
            logger.error("%d message(s) wait: their dead-letter exchange reaches no queue", waiting)
        return list(queues)

    def _lose(self) -> None:
        self.lost = True
        self._stop.set()
        self._on_lost()

    def _run(self, stop: threading.Event) -> None:
        """Renew three times a lease and sweep in between, until stopped or the connection is gone."""
        pause = min(self._sweep, self._lease / 3)
        renewed = monotonic()
        while not stop.wait(pause):
            try:
                if monotonic() - renewed >= self._lease / 3 - pause / 2:
                    renewed = monotonic()
                    self._renew(stop)
                self.sweep()
            except psycopg.OperationalError as error:
                if self._session.closed:
                    return  # The consumer's own statements meet the same error and lead to a new connection.
                logger.warning("transport upkeep failed, trying again: %s", error)
            except psycopg.Error:
                logger.exception("transport upkeep failed")

    def _renew(self, stop: threading.Event) -> None:
        with self._session.lock:
            if stop.is_set():
                return
            if not self._session.rows(declarations.RENEW, {"holder": self.holder, "lease": self._lease}):
                self._lose()
