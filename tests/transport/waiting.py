"""Waiting for a condition with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float = 20, what: str = "condition") -> T:
    """The first true answer of `condition`; fails the test when none comes in time."""
    deadline, pause = monotonic() + seconds, threading.Event()
    while not (answer := condition()):
        assert monotonic() < deadline, f"not within {seconds} s: {what}"
        pause.wait(0.02)
    return answer
