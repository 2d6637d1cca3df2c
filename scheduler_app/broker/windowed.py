"""Publisher confirms in a window, on AMQP (RabbitMQ: "Consumer Acknowledgements and Publisher Confirms").

Guaranteed: an id comes back only if the broker confirmed its message after routing it to a queue. It would break if
the channel were shared with a producer that waits for confirms by itself, or if `mandatory` were left out: RabbitMQ
confirms messages that no queue wanted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from amqp import Message, spec
from amqp.method_framing import frame_writer
from amqp.serialization import dumps

from scheduler_app.broker.topology import EXCHANGE
from scheduler_app.core.message import BODY, Hint, headers

WINDOW: Final = 2_000  # messages on their way without a confirm; one by one gives 1,750/s, a window over 20,000/s
CHUNK: Final = 100  # messages in one write to the socket
PERSISTENT: Final = 2
TEMPLATES: Final = 10_000
PLACE: Final = UUID("0e5e7e11-510c-4a11-8000-d0d0d0d0d0d0")
PLACE_BYTES: Final = str(PLACE).encode()


class _Written:
    """Takes what amqp's frame writer writes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data


class WindowedLink:
    """One confirming channel. A link that raised, or did not get all its confirms, is to be dropped."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._connection = channel.connection
        self._tag = 0
        self._pending: dict[int, UUID] = {}
        self._refused: set[UUID] = set()
        self._templates: dict[tuple[str, int, str], bytes] = {}
        channel.confirm_select()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.events["basic_return"].add(self._on_return)

    def publish(self, hints: Sequence[Hint], deadline: float) -> tuple[set[UUID], bool]:
        """Publish; the confirmed ids, and whether every message was answered before the (monotonic) deadline."""
        self._refused.clear()
        sent: set[UUID] = set()
        try:
            with self._connection.transport.having_timeout(max(0.1, deadline - time.monotonic())):
                for start in range(0, len(hints), CHUNK):
                    chunk = hints[start : start + CHUNK]
                    self._drain(WINDOW - CHUNK, deadline)
                    sent.update(hint.run_id for hint in chunk)
                    self._send(chunk)
            self._drain(0, deadline)
            complete = True
        except TimeoutError:
            complete = False
        return sent - self._refused - set(self._pending.values()), complete

    def _send(self, hints: Sequence[Hint]) -> None:
        """Write these hints at once. They count as on their way before the write, which may be cut off."""
        frames = b"".join([self._frames(hint) for hint in hints])
        for hint in hints:
            self._tag += 1
            self._pending[self._tag] = hint.run_id
        self._connection.transport.write(frames)

    def _frames(self, hint: Hint) -> bytes:
        """The frames of one message. They differ by the run's id alone, so that each kind is serialised only once."""
        kind = (hint.task, hint.attempt, hint.queue)
        template = self._templates.get(kind)
        if template is None:
            if len(self._templates) >= TEMPLATES:
                self._templates.clear()
            template = self._templates[kind] = self._serialised(replace(hint, run_id=PLACE))
        return template.replace(PLACE_BYTES, str(hint.run_id).encode())

    def _serialised(self, hint: Hint) -> bytes:
        """Method, header and body frame of `basic.publish`, as amqp's own writer makes them."""
        message = Message(
            BODY,
            application_headers=headers(hint),
            content_type="application/json",
            content_encoding="utf-8",
            delivery_mode=PERSISTENT,
            correlation_id=str(hint.run_id),
        )
        written = _Written()
        arguments = dumps("Bssbb", (0, EXCHANGE, hint.queue, True, False))
        frame_writer(self._connection, written)(1, self._channel.channel_id, spec.Basic.Publish, arguments, message)
        return bytes(written.data)

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
