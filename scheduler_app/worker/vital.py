"""Threads that a worker cannot do without.

A worker whose ledger has ended claims nothing, finishes nothing and looks alive; one whose keeper has ended works under
a lease that runs out. So what ends such a thread ends the worker: its attempts are lost, visibly, and run elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from celery.platforms import EX_FAILURE
from celery.utils.log import get_logger
from celery.worker import state

logger = get_logger(__name__)
failed: set[str] = set()
"""The names of those that have failed in this process."""


def vital_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """A thread (not started) that runs `run`; what it raises stops the worker with a failure."""

    def guarded() -> None:
        try:
            run()
        except BaseException:
            logger.critical("%s has failed; this worker stops, and others take up its runs", name, exc_info=True)
            failed.add(name)
            state.should_terminate = EX_FAILURE

    return threading.Thread(target=guarded, name=name, daemon=True)
