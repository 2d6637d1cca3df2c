"""The worker's consumer: Celery's, with the ledger and the keeper beside it, and no message that can kill it.

Stock Celery acknowledges what it cannot decode and dies of messages whose shape it does not expect. Here every such
message is rejected without requeue, which is the broker's dead-letter exchange; nothing vanishes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any

from celery import bootsteps
from celery.platforms import EX_FAILURE
from celery.utils.log import get_logger
from celery.worker.consumer import Consumer
from celery.worker.consumer.tasks import Tasks
from kombu import Consumer as KombuConsumer

from scheduler_app.broker.deaths import read_death
from scheduler_app.broker.topology import DEAD_QUEUE, dead_queue
from scheduler_app.core.text import storable
from scheduler_app.lifecycle.defer import Unknown
from scheduler_app.lifecycle.keep import Identity
from scheduler_app.models.ids import new_id
from scheduler_app.worker import vital
from scheduler_app.worker.keeper import Keeper
from scheduler_app.worker.ledger import Ledger
from scheduler_app.worker.pools import judge_pool
from scheduler_app.worker.sockets import forget_inherited_sockets
from scheduler_app.worker.strategy import NotAHint, read_hint

logger = get_logger(__name__)
LAST_WRITES = 15.0  # seconds that the ledger has at the end for what is not written yet
DEAD_PREFETCH = 50
POOL_CHECK = 0.5  # seconds
_LISTED = (list, tuple)


class Malformed(ValueError):
    """A message that no strategy should see."""


class DeadLetters(bootsteps.StartStopStep):
    """Drains the dead-letter queue into DeadLetter rows, on a channel of its own."""

    requires = (Tasks,)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self._consumer: Any = None
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Any) -> None:
        channel = consumer.connection.channel()
        self._consumer = KombuConsumer(
            channel,
            queues=[dead_queue()],
            on_message=lambda message: _bury(consumer, message),
            # What Kombu cannot even decompress has killed one message already; here it must not kill the worker.
            on_decode_error=lambda message, _: _bury(consumer, message),
            accept=None,
        )
        self._consumer.qos(prefetch_count=DEAD_PREFETCH)
        self._consumer.consume()

    def stop(self, consumer: Any) -> None:
        if self._consumer is not None:
            taken, self._consumer = self._consumer, None
            try:
                taken.cancel()
            except consumer.connection_errors + consumer.channel_errors:
                logger.debug("the connection of the dead-letter consumer is gone", exc_info=True)


def _bury(consumer: Any, message: Any) -> None:
    letter = read_death(message.headers, message.body, DEAD_QUEUE)
    consumer.ledger.bury(letter, lambda: message.ack_log_error(logger, consumer.connection_errors))


class DurableConsumer(Consumer):
    """Celery's consumer with our ledger, keeper and dead letters."""

    class Blueprint(Consumer.Blueprint):
        # Delays live in the database: the 28 queues of native delayed delivery would only stand around.
        default_steps = [
            step for step in Consumer.Blueprint.default_steps if not str(step).endswith("DelayedDelivery")
        ] + [DeadLetters]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        judge_pool(kwargs["pool"])  # before anything is started that would have to be stopped
        super().__init__(*args, **kwargs)
        self.ledger = Ledger(self.hostname, self._slots, self._submit, self._on_loop)
        self.keeper = Keeper(self._identity(), self.ledger, self._on_loop)
        self._threads_started = False

    def start(self) -> None:
        if not self._threads_started:
            self._threads_started = True
            forget_inherited_sockets()
            self.ledger.start()
            self.keeper.start()
        super().start()

    def register_with_event_loop(self, hub: Any) -> None:
        """Look for dead pool children often: their pipe may close before they can be waited for, which Celery then
        only sees when it looks again, every 5 s."""
        super().register_with_event_loop(hub)
        hub.call_repeatedly(POOL_CHECK, self.pool.maintain_pool)

    def on_close(self) -> None:
        self.ledger.drop_deliveries()
        super().on_close()

    def stop(self) -> None:
        self.ledger.close_to_claims()
        super().stop()

    def shutdown(self) -> None:
        """After the pool has drained, while the broker connection is still open: the last finishes and their acks."""
        if self._threads_started:
            self.ledger.give_back_unstarted()
            if not self.ledger.stop(LAST_WRITES):
                logger.warning("some finishes could not be written; their runs will be taken up again")
            self.keeper.stop(LAST_WRITES)
        if vital.failed and self.controller is not None:
            self.controller.exitcode = EX_FAILURE  # Celery ends a terminated worker with 0, and nobody would restart it
        super().shutdown()

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        self._dead_letter(message, exc)

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        handle = super().create_task_handler(*args, **kwargs)

        def on_task_received(message: Any) -> Any:
            try:
                validate(message)
                return handle(message)
            except (MemoryError, *self.connection_errors):
                raise
            except Exception as error:
                self._dead_letter(message, error)

        return on_task_received

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """A run of ours waits in the database for a worker that knows its task; other messages are Celery's to fail."""
        try:
            wanted = read_hint(message.headers)
        except NotAHint:
            super().on_unknown_task(body, message, exc)
            return
        logger.warning("the task %r of run %s is not known here: it waits", message.headers["task"], wanted.run_id)
        unknown = Unknown(wanted.run_id, wanted.attempt, storable(message.headers["task"]))
        self.ledger.defer(unknown, lambda true: self._settle_unknown(message, true))

    def _settle_unknown(self, message: Any, true: bool) -> None:
        if true:
            message.ack_log_error(logger, self.connection_errors)
        else:
            self._dead_letter(message, NotAHint(f"no run of the task {message.headers['task']!r} has this id"))

    def _dead_letter(self, message: Any, error: Exception) -> None:
        logger.error("a message that cannot be run goes to the dead letters: %s", error)
        if message.acknowledged:
            return
        if forged_deaths(message.headers):
            # RabbitMQ's dead-lettering stops for good at such a header, and with it every death that comes after.
            queue = str(message.delivery_info.get("routing_key", ""))
            letter = replace(read_death(message.headers, message.body, queue), reason="rejected")
            self.ledger.bury(letter, lambda: message.ack_log_error(logger, self.connection_errors))
        else:
            message.reject_log_error(logger, self.connection_errors, requeue=False)

    def _identity(self) -> Identity:
        return Identity(
            id=new_id(),
            name=self.hostname,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            concurrency=self._slots(),
            queues=tuple(sorted(self.app.amqp.queues.consume_from)),
        )

    def _slots(self) -> int:
        return int(getattr(self.pool, "num_processes", None) or 1)

    def _submit(self, request: Any) -> None:
        self.on_task_request(request)

    def _on_loop(self, call: Callable[[], None]) -> None:
        if self.hub is not None:
            self.hub.call_soon(call)
        else:
            self.timer.call_after(0, call)


def validate(message: Any) -> None:
    """Refuse what Celery's own handler would die of; raises Malformed (see the consumer's opening words)."""
    headers = message.headers
    if (
        not isinstance(headers, dict)
        or not isinstance(headers.get("task"), str)
        or not isinstance(headers.get("id"), str)
    ):
        raise Malformed("not a Celery message: the task or id header is missing")
    if forged_deaths(headers):
        raise Malformed("the x-death header is not the broker's")
    limits = headers.get("timelimit")
    if limits is not None and not (isinstance(limits, _LISTED) and len(limits) == 2 and all(map(_seconds, limits))):
        raise Malformed(f"the timelimit header is {limits!r}")
    if not isinstance(headers.get("stamped_headers") or [], list) or not isinstance(headers.get("stamps") or {}, dict):
        raise Malformed("the stamp headers have the wrong shape")
    body = message.payload
    if not (
        isinstance(body, _LISTED) and len(body) == 3 and isinstance(body[0], _LISTED) and isinstance(body[1], dict)
    ):
        raise Malformed("the body is not [args, kwargs, embed]")
    if not (body[2] is None or isinstance(body[2], dict)):
        raise Malformed("the body's third part is not an object")


def forged_deaths(headers: Any) -> bool:
    """Whether a message carries an x-death header that no broker has written: not a list of tables."""
    deaths = headers.get("x-death") if isinstance(headers, dict) else None
    return deaths is not None and not (isinstance(deaths, list) and all(isinstance(each, dict) for each in deaths))


def _seconds(value: Any) -> bool:
    return value is None or (isinstance(value, Real) and not isinstance(value, bool))
