"""One claimed attempt in the worker's parent: every way out of the pool, mapped to one ending for the ledger.

Nothing here waits: endings go to the ledger's thread, and the message is acknowledged when the ending is committed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID
from weakref import ref

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import Terminated
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError
from celery.utils.log import get_logger
from celery.worker.request import Request, task_ready

from scheduler_app.conf import conf
from scheduler_app.core.budget import TimeBudget
from scheduler_app.core.errors import Cancelled, GiveUp, RetryLater
from scheduler_app.core.outcome import Ending, Way, settle
from scheduler_app.core.retry import RetryPolicy
from scheduler_app.core.text import describe, storable
from scheduler_app.store.work import Claimed
from scheduler_app.worker.trace import EXHAUSTED, trace_durable

if TYPE_CHECKING:
    from scheduler_app.worker.ledger import Ledger

logger = get_logger(__name__)
_LOST = (SystemExit, KeyboardInterrupt, WorkerLostError, MemoryError)


class DurableRequest(Request):
    """A claimed attempt. `claim`, `worker`, `policy`, `budget`, `limit` (seconds after which it is killed) and `ledger`
    are set by the strategy right after it is made, `refusal` if it must not start."""

    claim: Claimed
    worker: UUID
    policy: RetryPolicy
    budget: TimeBudget
    limit: float
    ledger: Ledger
    refusal: tuple[Way, str] | None = None
    long_running = False  # its message is acknowledged after the claim
    claimed = 0.0  # on the monotonic clock
    accepted: float | None = None  # on the monotonic clock, when a child took it up
    ended = False
    overdue = False  # killed, since it did not stop when it was asked to

    def execute_using_pool(self, pool: Any, **_: Any) -> Any:
        hard, soft = self.time_limits
        result = pool.apply_async(
            trace_durable,
            args=(self._type, self.id, self._request_dict, self._body),
            accept_callback=self.on_accepted,
            timeout_callback=self.on_timeout,
            callback=self.on_success,
            error_callback=self.on_failure,
            soft_timeout=soft,
            timeout=hard,
            correlation_id=self.id,
        )
        self._apply_result = ref(result) if result is not None else None
        return result

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        self.accepted = time.monotonic()
        super().on_accepted(pid, time_accepted)

    def hold_in_pool(self) -> bool:
        """Keep it if a child has it or is being written it; whether that is so. Then it must not be given back.

        Before it closes, the pool discards what no child has accepted yet. A child that got the message all the same
        would work for nobody, and then wait 30 s for its result to be read (billiard, `_ensure_messages_consumed`).
        """
        job: Any = self._apply_result() if self._apply_result is not None else None
        if job is None or job._write_to is None:
            return self.time_start is not None
        job._accepted = True
        return True

    def waits_in_child(self) -> bool:
        """Whether it was written to a child of the pool that has not said yet that it has begun."""
        return self._child_to_begin() is not None

    def kill_hung_child(self) -> int | None:
        """Kill the child that does not begin; its process id, or None if it has begun or ended meanwhile."""
        with self.ledger.ending:
            child = None if self.ended else self._child_to_begin()
            if child is not None:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        return child

    def _child_to_begin(self) -> int | None:
        job: Any = self._apply_result() if self._apply_result is not None else None
        written = None if job is None or self.accepted is not None else getattr(job, "_write_to", None)
        return written.pid if written is not None else None

    def kill_child(self) -> bool:
        """Kill the pool child that works on this attempt, which then ends as cancelled; whether it was done.

        Called from the keeper's thread. A child gets its next task only after the event loop has read the result of
        this one and marked it as ended, so that under the lock no other run's child can be hit.
        """
        with self.ledger.ending:
            child = self.worker_pid
            if self.ended or self.overdue or child in (None, os.getpid()):  # our own: a pool without processes
                return False
            self.overdue = True
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        return True

    def revoked(self) -> bool:
        """Cancelling is a column of the run; Celery's revoke blacklist plays no part."""
        return False

    def on_success(self, failed__retval__runtime: tuple[int, Any, float | None], **_: Any) -> None:
        failed, value, runtime = failed__retval__runtime
        if failed:
            self.on_failure(value, return_ok=True, exhausted=failed == EXHAUSTED)
            return
        if runtime is not None:
            self.ledger.learn(self._type, runtime)
        self.send_event("task-succeeded", result=value[:200], runtime=runtime)
        if self.task.transactional:
            if not self._end_once():
                return
            task_ready(self, successful=True)
            self.ledger.forget(self)
            self.acknowledge()
        else:
            self.end(Way.RETURNED, result=value)

    def on_failure(
        self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False, exhausted: bool = False
    ) -> None:
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        way, delay, free, extra = way_out(error)
        last = exhausted and way is Way.FAILED
        said = getattr(error, "said", "") or describe(error)
        if way is Way.TIMED_OUT:
            self._end_over_time()
            return
        if way is Way.LOST and self.overdue:
            way, said = Way.CANCELLED, f"killed: it went on for {conf().cancel_grace:g} s after it was asked to stop"
        traceback = "" if self.overdue or way in (Way.LOST, Way.STOPPED) else storable(str(exc_info.traceback or ""))
        event = "task-retried" if way is Way.RETRY else "task-failed"
        self.send_event(event, exception=storable(said, 500), traceback=traceback)
        if last:
            self.end(Way.RETRY, last=True, error=said, traceback=traceback)
        else:
            self.end(way, delay=delay, free=free, extra=extra, error=said, traceback=traceback)

    def on_retry(self, exc_info: Any) -> None:
        self.on_failure(exc_info)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        if soft:
            logger.warning("soft time limit of %s s over for %s[%s]", timeout, self.name, self.id)
        else:
            self._end_over_time()

    def _end_over_time(self) -> None:
        """It was killed: by its own limit, or by the run's, after which no attempt may follow."""
        over_all = self.limit < self.claim.time_limit
        said = over_run_timeout(self.budget) if over_all else f"killed: over its time limit of {self.limit} s"
        self.end(Way.TIMED_OUT, last=over_all, error=said)

    def end(
        self,
        way: Way,
        *,
        delay: float | None = None,
        free: bool = False,
        extra: int = 0,
        last: bool = False,
        error: str = "",
        traceback: str = "",
        result: str | None = None,
    ) -> None:
        """Hand the ending to the ledger, once: a killed child reports itself more than once.

        `last` says that no attempt may follow, whatever the run's limit."""
        if not self._end_once():
            return
        task_ready(self, successful=way is Way.RETURNED)
        ending = settle(
            way,
            attempt=self.claim.attempt,
            max_attempts=self.claim.attempt if last else self.claim.max_attempts + extra,
            policy=self.policy,
            uniform=random.uniform,
            wanted_delay=delay,
            free=free,
            retry_left=self.budget.retry_left(self.claim.elapsed + time.monotonic() - self.claimed),
            error=error,
            traceback=traceback,
            result=result,
        )
        self.ledger.finish(self, with_extra(ending, extra))

    def _end_once(self) -> bool:
        """Mark it as ended; False if it was."""
        with self.ledger.ending:
            first, self.ended = not self.ended, True
        return first

    def settle_message(self, ending: Ending, was_current: bool) -> None:
        """After the commit: acknowledge, or send the message of a dead run to the dead-letter exchange."""
        if was_current and ending.rejects_message:
            self.reject(requeue=False)
        else:
            self.acknowledge()


def way_out(error: BaseException) -> tuple[Way, float | None, bool, int]:
    """(way, wanted delay in seconds, costs no attempt, more attempts) for what came out of the child."""
    if isinstance(error, Retry):
        return Way.RETRY, getattr(error, "delay", None), False, getattr(error, "extra_attempts", 0)
    if isinstance(error, RetryLater):
        return Way.RETRY, error.after, True, 0
    if isinstance(error, Terminated):  # by its own worker, which is being stopped
        return Way.STOPPED, None, False, 0
    if isinstance(error, TimeLimitExceeded):
        return Way.TIMED_OUT, None, False, 0
    if isinstance(error, SoftTimeLimitExceeded):
        return Way.RETRY, None, False, 0
    if isinstance(error, Reject):
        return (Way.REQUEUED if error.requeue else Way.REJECTED), None, False, 0
    simple = ((Ignore, Way.IGNORED), (GiveUp, Way.GAVE_UP), (Cancelled, Way.CANCELLED), (_LOST, Way.LOST))
    return next((way for kind, way in simple if isinstance(error, kind)), Way.FAILED), None, False, 0


def over_run_timeout(budget: TimeBudget) -> str:
    """The error of an attempt that the run's timeout has killed, or kept from starting."""
    return f"over its run timeout: {budget.run_timeout} s after its first attempt started"


def with_extra(ending: Ending, extra: int) -> Ending:
    """The ending with attempts that the task itself asked for."""
    return replace(ending, extra_attempts=ending.extra_attempts + extra) if extra else ending
