"""Publisher confirms in a window, on AMQP (RabbitMQ: "Consumer Acknowledgements and Publisher Confirms").

Guaranteed: an id comes back only if the broker confirmed its message after routing it to a queue. It would break if
the channel were shared with a producer that waits for confirms by itself, or if `mandatory` were left out: RabbitMQ
confirms messages that no queue wanted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from amqp import Message, spec

from scheduler_app.broker.topology import EXCHANGE
from scheduler_app.core.message import BODY, Hint, headers

WINDOW: Final = 2_000  # messages on their way without a confirm; one by one gives 1,750/s, a window over 20,000/s
PERSISTENT: Final = 2


class WindowedLink:
    """One confirming channel. A link that raised, or did not get all its confirms, is to be dropped."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._connection = channel.connection
        self._tag = 0
        self._pending: dict[int, UUID] = {}
        self._refused: set[UUID] = set()
        channel.confirm_select()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.events["basic_return"].add(self._on_return)

    def publish(self, hints: Sequence[Hint], deadline: float) -> tuple[set[UUID], bool]:
        """Publish; the confirmed ids, and whether every message was answered before the (monotonic) deadline."""
        self._refused.clear()
        sent: set[UUID] = set()
        complete = False
        try:
            with self._connection.transport.having_timeout(max(0.1, deadline - time.monotonic())):
                for hint in hints:
                    if len(self._pending) >= WINDOW:
                        self._drain(WINDOW // 2, deadline)
                    self._send(hint)
                    sent.add(hint.run_id)
            self._drain(0, deadline)
            complete = True
        except TimeoutError:
            pass
        return sent - self._refused - set(self._pending.values()), complete

    def _send(self, hint: Hint) -> None:
        run_id = str(hint.run_id)
        message = Message(
            BODY,
            application_headers=headers(hint),
            content_type="application/json",
            content_encoding="utf-8",
            delivery_mode=PERSISTENT,
            correlation_id=run_id,
        )
        # As Channel.basic_publish, without its read of the socket before every message.
        self._channel.send_method(spec.Basic.Publish, "Bssbb", (0, EXCHANGE, hint.queue, True, False), message)
        self._tag += 1
        self._pending[self._tag] = hint.run_id

    def _drain(self, most: int, deadline: float) -> None:
        """Read confirms until at most `most` are outstanding; TimeoutError past the deadline."""
        while len(self._pending) > most:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError("the broker did not confirm in time")
            try:
                self._connection.drain_events(timeout=remaining)
            except TimeoutError as error:
                raise TimeoutError("the broker did not confirm in time") from error

    def _settle(self, tag: int, multiple: bool) -> list[UUID]:
        if not multiple:
            found = self._pending.pop(tag, None)
            return [] if found is None else [found]
        settled = []
        for each in list(self._pending):
            if each > tag:
                break
            settled.append(self._pending.pop(each))
        return settled

    def _on_ack(self, tag: int, multiple: bool) -> None:
        self._settle(tag, multiple)

    def _on_nack(self, tag: int, multiple: bool) -> None:
        self._refused.update(self._settle(tag, multiple))

    def _on_return(self, _error: Exception, _exchange: str, _key: str, message: Any) -> None:
        """A message that reached no queue comes back before its confirm."""
        self._refused.add(UUID(message.properties["correlation_id"]))
