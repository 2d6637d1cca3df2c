"""The declaring half of a channel: exchanges, queues, bindings. Names and errors are AMQP's."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import psycopg
from amqp.exceptions import NotFound, PreconditionFailed, RecoverableConnectionError
from amqp.protocol import queue_declare_ok_t
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments  # type: ignore[attr-defined, unused-ignore]
from kombu.utils.uuid import uuid

from scheduler_app.transport import declarations
from scheduler_app.transport.routing import topic_pattern

if TYPE_CHECKING:
    from scheduler_app.transport.session import Row, Session

COUNTED_AT_MOST = 10_000


class DeclaringChannel(virtual.Channel):
    """What exists is in the database, so that every process routes alike; Kombu's own state is not used."""

    def exchange_declare(
        self,
        exchange: str | None = None,
        type: str = "direct",
        durable: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        nowait: bool = False,
        passive: bool = False,
    ) -> None:
        """Declare an exchange. Raises `NotFound` (passive) or `PreconditionFailed` when it has another type."""
        name, kind = exchange or f"amq.{type or 'direct'}", type or "direct"
        if passive:
            found = self._rows(declarations.FIND_EXCHANGE, name=name)
        else:
            found = self._rows(
                declarations.DECLARE_EXCHANGE,
                name=name,
                type=kind,
                durable=durable,
                auto_delete=auto_delete,
                arguments=json.dumps(arguments or {}),
            )
        if not found:
            raise NotFound(f"NOT_FOUND - no exchange {name!r}", (40, 10), "Channel.exchange_declare")
        if not passive and found[0][0] != kind:
            raise PreconditionFailed(f"PRECONDITION_FAILED - exchange {name!r} is {found[0][0]}, not {kind}", (40, 10))

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Delete an exchange with its bindings."""
        if if_unused and any(bound == exchange for _queue, bound, _key in self.list_bindings()):
            return
        self._rows(declarations.DELETE_EXCHANGE, name=exchange)

    def prepare_queue_arguments(self, arguments: dict[str, Any] | None, **kwargs: Any) -> Any:
        return to_rabbitmq_queue_arguments(arguments, **kwargs)

    def queue_declare(self, queue: str | None = None, passive: bool = False, **kwargs: Any) -> queue_declare_ok_t:
        """Declare a queue. Counts are exact when passive; else messages are counted up to 10,000 only."""
        name = queue or f"amq.gen-{uuid()}"
        if not passive:
            self._rows(
                declarations.DECLARE_QUEUE,
                name=name,
                durable=bool(kwargs.get("durable", False)),
                auto_delete=bool(kwargs.get("auto_delete") or kwargs.get("exclusive")),
                arguments=json.dumps(kwargs.get("arguments") or {}),
            )
        elif not self._has_queue(name):
            raise NotFound(f"NOT_FOUND - no queue {name!r}", (50, 10), "Channel.queue_declare")
        bound = None if passive else COUNTED_AT_MOST
        messages, consumers = self._rows(declarations.COUNT_QUEUE, name=name, bound=bound)[0]
        return queue_declare_ok_t(name, messages, consumers)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Bind a queue. Every queue is bound to the default exchange by its name already."""
        if not exchange:
            return
        key = routing_key or ""
        try:
            self._rows(declarations.BIND, exchange=exchange, routing_key=key, queue=queue, pattern=topic_pattern(key))
        except psycopg.errors.ForeignKeyViolation as error:
            raise NotFound(f"NOT_FOUND - no queue {queue!r}", (50, 20), "Channel.queue_bind") from error

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._rows(declarations.UNBIND, exchange=exchange or "", routing_key=routing_key or "", queue=queue)

    def queue_purge(self, queue: str, **kwargs: Any) -> int:
        """Delete the ready messages and say how many there were."""
        return self._session.count(declarations.PURGE, {"name": queue})

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any) -> int | None:
        """Delete a queue with its bindings and messages. Raises `PreconditionFailed` where a condition is not met."""
        messages, consumers = self._rows(declarations.COUNT_QUEUE, name=queue, bound=1)[0]
        if (if_unused and consumers) or (if_empty and messages):
            raise PreconditionFailed(f"PRECONDITION_FAILED - queue {queue!r} is in use or not empty", (50, 40))
        with self._session.transaction():
            self._rows(declarations.DELETE_QUEUE, name=queue)
            return self._session.count(declarations.DELETE_MESSAGES, {"names": [queue]})

    def list_bindings(self) -> Generator[tuple[str, str, str], None, None]:
        """(queue, exchange, routing key) of every binding."""
        yield from ((row[0], row[1], row[2]) for row in self._rows(declarations.BINDINGS))

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return bool(self._rows(declarations.FIND_QUEUE, name=queue))

    def _size(self, queue: str) -> int:
        return int(self._rows(declarations.COUNT_QUEUE, name=queue, bound=None)[0][0])

    @property
    def _session(self) -> Session:
        if self.connection is None:
            raise RecoverableConnectionError("channel is closed")
        transport: Any = self.connection
        return transport.session

    def _rows(self, statement: Any, **parameters: object) -> list[Row]:
        return self._session.rows(statement, parameters)
