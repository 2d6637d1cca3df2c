"""Who leads, and how long a beat may believe that it does.

What identifies a term: (holder, epoch) in the term row. `holder` is new at every start of a beat, `epoch` grows with
every taking and never falls, so that no two terms are alike, not even of one process.

Why two leaders do no harm: every recording transaction begins by renewing the row under its (holder, epoch). That one
UPDATE checks the term, renews it, and holds the row's lock until the commit. A successor can take the term only before
it or after it, never in between; a leader that lost the term finds no row and writes nothing. The loop runs at least
every third of a term, so there is no other renewal, and no trust in a clock of this process.

What each failure does:
- the leader dies: its session ends, the advisory lock with it; a standby that gets that lock has the proof and takes
  the term at once. Where sessions cannot hold locks (a transaction pooler) the term has to run out first.
- the leader freezes inside a transaction: PostgreSQL ends the transaction after IDLE seconds, which frees the row; its
  commit is refused. Frozen outside one, its term runs out, and its next renewal finds no row.
- the leader's database session breaks: a standby may take over, or the leader comes back first; the row decides.
- a term was won because it had run out while the old session lives on: the lock is asked for again at every step.
- Redis: see gate.py. A beat whose gate is shut neither contends nor leads; losing it means standby, never exit.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable
from typing import Protocol

from scheduler_app.lifecycle import elect
from scheduler_app.lifecycle.elect import Fence

logger = logging.getLogger("everyslot.beat")


class Gate(Protocol):
    """What may forbid a beat to lead, whatever the term row says."""

    def may_contend(self) -> bool:
        """Whether a standby may take the term."""

    def may_lead(self) -> bool:
        """Whether a leader may go on."""


def new_holder() -> str:
    """A name for this start of this process, never used again."""
    return f"{socket.gethostname()[:200]}:{os.getpid()}:{secrets.token_hex(4)}"


class Leadership:
    """This beat's view of the term; used by the recording thread only, `fence` may be read by all."""

    def __init__(self, holder: str, gate: Gate, changed: Callable[[], None] = lambda: None) -> None:
        self.holder = holder
        self.fence: Fence | None = None
        self._gate = gate
        self._changed = changed
        self._session_locked = False

    def step(self) -> Fence | None:
        """Contend, or see to the session lock; the fence to record under, or None for a standby."""
        if self.fence is not None and not self._gate.may_lead():
            self.resign("another beat holds the Redis lock")
        elif self.fence is not None and not self._session_locked:
            self._session_locked = elect.lock_session(self.fence)
        if self.fence is None and self._gate.may_contend():
            self._won(elect.contend(self.holder))
        return self.fence

    def _won(self, won: elect.Won | None) -> None:
        if won is not None:
            self.fence, self._session_locked = won.fence, won.session_locked
            logger.info("leading, epoch %d", won.fence.epoch)
            self._changed()

    def lost(self) -> None:
        """A renewal found another leader: stand by."""
        self._over("the term is another's")
        if self._session_locked:
            self._session_locked = False
            elect.unlock_session()

    def session_broken(self) -> None:
        """The database session is gone and its lock with it; the row still decides about the term."""
        self._session_locked = False

    def resign(self, reason: str) -> None:
        """Give the term up, so that another beat leads at once."""
        if self.fence is None:
            return
        fence, locked = self.fence, self._session_locked
        self._session_locked = False
        self._over(reason)
        elect.release(fence, session_locked=locked)

    def _over(self, reason: str) -> None:
        if self.fence is not None:
            logger.info("standing by, epoch %d is over: %s", self.fence.epoch, reason)
            self.fence = None
            self._changed()
