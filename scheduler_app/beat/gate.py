"""RedBeat's lock as the first gate of the election: a beat that Redis answers "another has it" stands by.

Guaranteed: no fault of Redis stops recording or ends a beat. The lock only spares the term row contenders; when Redis
has not answered for one lock lifetime, the row alone elects. A beat that cannot reach PostgreSQL gives the lock up,
so that it cannot keep the others from leading.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Any

from redbeat.schedulers import LUA_EXTEND_TO_SCRIPT, get_redis
from redis.exceptions import LockError, RedisError

logger = logging.getLogger("everyslot.beat")


class State(Enum):
    UNKNOWN = "Redis does not answer"
    HELD = "held"
    ELSEWHERE = "another beat holds the Redis lock"


class OpenGate:
    """No Redis: nothing forbids anything."""

    def may_contend(self) -> bool:
        return True

    def may_lead(self) -> bool:
        return True


class RedisGate:
    """The lock, kept by a thread of its own, since Redis may take its time to fail."""

    def __init__(
        self,
        app: Any,
        key: str,
        lifetime: float,
        healthy: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._app, self._key, self._lifetime = app, key, lifetime
        self._healthy, self._changed = healthy, changed
        self._lock: Any = None
        self._token = secrets.token_hex(16)
        self.state = State.UNKNOWN
        self._since = time.monotonic()

    def may_contend(self) -> bool:
        """With the lock; or without, once Redis has been silent for a lock's lifetime."""
        silent = time.monotonic() - self._since
        return self.state is State.HELD or (self.state is State.UNKNOWN and silent >= self._lifetime)

    def may_lead(self) -> bool:
        return self.state is not State.ELSEWHERE

    def run(self, stopping: threading.Event) -> None:
        """Keep the lock until the process stops, then release it."""
        while not stopping.is_set():
            self.step()
            stopping.wait(min(1.0, self._lifetime / 4))
        self.release()

    def step(self) -> None:
        """Extend the lock, or try to get it; never raises, takes as long as Redis' own timeouts."""
        try:
            if self._healthy():
                self._become(State.HELD if self._extend() or self._acquire() else State.ELSEWHERE)
            else:
                self.release()
                self._become(State.UNKNOWN)
        except (RedisError, OSError) as error:
            if self.state is not State.UNKNOWN:
                logger.warning("Redis does not answer, the term alone elects: %s", error)
            self._become(State.UNKNOWN)

    def release(self) -> None:
        """Let go of the lock if it is ours; never raises."""
        if self._lock is not None:
            try:
                self._lock.release()
            except LockError:
                return  # it was not ours, or has run out
            except (RedisError, OSError) as error:
                logger.info("the Redis lock was not released, it runs out by itself: %s", error)

    def _extend(self) -> bool:
        try:
            self._with_token().extend(self._lifetime)
        except LockError:
            return False
        return True

    def _acquire(self) -> bool:
        return bool(self._with_token().acquire(blocking=False, token=self._token))

    def _with_token(self) -> Any:
        """The lock under this beat's own token, always the same one.

        So an acquisition whose answer got lost is found to be ours by the next extension. With a token a try, Redis
        would carry such a leftover out after a stall, and nobody would hold the lock for its whole lifetime.
        """
        if self._lock is None:
            client = get_redis(self._app)
            # Not thread-local: the thread that stops the beat may be another than the one that got the lock.
            self._lock = client.lock(self._key, timeout=self._lifetime, thread_local=False)
            self._lock.lua_extend = client.register_script(LUA_EXTEND_TO_SCRIPT)
        self._lock.local.token = self._token.encode()
        return self._lock

    def _become(self, state: State) -> None:
        if state is not self.state:
            self._since = time.monotonic()
            self.state = state
            logger.info("Redis lock: %s", state.value)
            self._changed()
