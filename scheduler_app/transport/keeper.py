"""The consumer's presence in the database: one row is the lease of every message that the connection holds.

Guaranteed: while the process lives, the row is renewed by a thread of its own, whatever the event loop does (a warm
shutdown that drains a long task included). It would break if a statement held the session's lock for a whole lease;
the session's statement timeout (15 s) forbids that for leases of 30 s and more.
The same thread sweeps for everyone: messages of dead holders return, dying ones are buried, unused queues leave.
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


class Keeper:
    """Holds the lease (`lease` seconds) of a session's consumers and sweeps every `sweep` seconds."""

    def __init__(
        self,
        session: Session,
        *,
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
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, queues: Collection[str]) -> int:
        """Consume from exactly these queues from now on, and listen to them; the answer is the holder's number."""
        wanted = frozenset(queues)
        with self._session.lock:
            if self.holder is None:
                found = self._session.rows(declarations.HOLD, {"queues": sorted(wanted), "lease": self._lease})
                self.holder = found[0][0]
                self._thread = threading.Thread(target=self._run, name="everyslot transport keeper", daemon=True)
                self._thread.start()
            elif wanted != self.queues and not self._session.rows(
                declarations.HOLD_OTHER,
                {"holder": self.holder, "queues": sorted(wanted), "lease": self._lease},
            ):
                self._lose()
            self.queues = wanted
            self._session.listen({notice_channel(name) for name in wanted})
            return int(self.holder or 0)

    def stop(self) -> None:
        """Renew and sweep no more."""
        self._stop.set()

    def release(self) -> None:
        """Stop and leave; whatever is still held returns with the next sweep."""
        self.stop()
        with self._session.lock:
            if self.holder is not None and not self._session.closed:
                self._session.count(declarations.RELEASE, {"holder": self.holder})
            self.queues = frozenset()

    def give_back(self, ids: Collection[int]) -> None:
        """Make held messages visible at once; those over their delivery limit go to their dead-letter exchange."""
        with self._session.transaction():
            returned = self._session.rows(
                statements.GIVE_BACK,
                {"ids": list(ids), "holder": self.holder, "delivery_limit": self._delivery_limit},
            )
            dying = [id_ for id_, _queue, is_dying in returned if is_dying]
            reached = self._bury(dying) if dying else []
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

    def _run(self) -> None:
        """Renew three times a lease and sweep in between, until stopped or the connection is gone."""
        pause = min(self._sweep, self._lease / 3)
        renewed = monotonic()
        while not self._stop.wait(pause):
            try:
                if monotonic() - renewed >= self._lease / 3 - pause / 2:
                    renewed = monotonic()
                    if not self._session.rows(declarations.RENEW, {"holder": self.holder, "lease": self._lease}):
                        self._lose()
                        return
                self.sweep()
            except psycopg.OperationalError as error:
                if self._session.closed:
                    return  # The consumer's own statements meet the same error and lead to a new connection.
                logger.warning("transport upkeep failed, trying again: %s", error)
            except psycopg.Error:
                logger.exception("transport upkeep failed")
