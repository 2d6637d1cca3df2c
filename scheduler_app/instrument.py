"""Announce in one place, listen elsewhere: `emit("run.claimed", run=…)`; logs, metrics and traces subscribe.

A listener that raises is logged and never disturbs the step that announced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

Listener = Callable[[str, dict[str, object]], None]
logger = logging.getLogger("everyslot")
_listeners: list[Listener] = []


def subscribe(listener: Listener) -> Callable[[], None]:
    """Call `listener(event, fields)` for every event; returns the way to stop that."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def emit(event: str, **fields: object) -> None:
    """Announce that something happened. Never raises."""
    for listener in tuple(_listeners):
        try:
            listener(event, fields)
        except Exception:
            logger.exception("a listener failed on %s", event)
