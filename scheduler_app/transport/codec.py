"""Kombu's virtual message dict to a row and back. Pure.

The row keeps exchange, routing key, priority and expiry in columns; `payload` is the rest as JSON.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kombu.utils import json as kombu_json

MAX_PRIORITY = 9


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message on its way to a row; `ttl` in milliseconds."""

    exchange: str
    routing_key: str
    priority: int
    ttl: int | None
    payload: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message as it was read; `holder` is None when it was deleted by reading it."""

    id: int
    queue: str
    holder: int | None
    content: dict[str, Any]


def outgoing(exchange: str, routing_key: str, message: Mapping[str, Any]) -> Outgoing:
    """Take a message as `prepare_message` makes it, whether or not its body has been encoded; it is not changed."""
    properties = dict(message["properties"])
    properties.pop("delivery_info", None)
    properties.pop("delivery_tag", None)
    body = message["body"]
    if "body_encoding" not in properties:
        if isinstance(body, str):
            properties["body_encoding"] = "utf-8"
        else:
            body = b64encode(bytes(body)).decode()
            properties["body_encoding"] = "base64"
    payload = kombu_json.dumps({**message, "body": body, "properties": properties})
    return Outgoing(exchange or "", routing_key or "", _priority(properties), _ttl(properties), payload)


def delivery(row: Sequence[Any], holder: int | None) -> Delivery:
    """Take a row of READ or TAKE: id, queue, exchange, routing key, deliveries, deaths, payload after rank and turn."""
    _rank, _turn, id_, queue, exchange, routing_key, deliveries, deaths, payload = row
    content = _content(payload)
    content["properties"]["delivery_info"] = {
        "exchange": exchange,
        "routing_key": routing_key,
        "redelivered": deliveries > 1,
    }
    headers = content.get("headers") or {}
    if deaths:
        headers.update(_death_headers(deaths))
    if deliveries > 1 or deaths:
        headers["x-delivery-count"] = deliveries - 1 + (deaths or {}).get("delivery_count", 0)
    content["headers"] = headers
    return Delivery(id_, queue, holder, content)


def _content(payload: str) -> dict[str, Any]:
    """The message as it was published; a marked value that is not what it says stays as it was written."""
    # Kombu's decoder calls Python for every object; it is needed only where a marked type is inside.
    if '"__type__"' in payload:
        try:
            return kombu_json.loads(payload)
        except Exception:  # whatever the decoder of a type raises: one bad header must not stop the queue behind it
            return json.loads(payload)
    return json.loads(payload)


def _death_headers(deaths: Mapping[str, Any]) -> dict[str, Any]:
    """RabbitMQ's headers ("Dead Letter Exchanges", "Effects on messages"): the latest death comes first."""
    first = deaths["first"]
    return {
        "x-first-death-reason": first["reason"],
        "x-first-death-queue": first["queue"],
        "x-first-death-exchange": first["exchange"],
        "x-death": [{**death, "time": datetime.fromtimestamp(death["time"], UTC)} for death in deaths["history"]],
    }


def _priority(properties: Mapping[str, Any]) -> int:
    try:
        return max(0, min(int(properties.get("priority") or 0), MAX_PRIORITY))
    except (TypeError, ValueError):
        return 0


def _ttl(properties: Mapping[str, Any]) -> int | None:
    """`expiration` is a string of milliseconds in AMQP."""
    try:
        return max(0, int(properties["expiration"]))
    except (KeyError, TypeError, ValueError):
        return None
