"""Two tasks that do nothing but note the time: one durable, one plain Celery without results."""

from __future__ import annotations

import os
import struct
import time

from celery import shared_task

from scheduler_app import durable_task

_descriptor: int | None = None


def _note() -> None:
    global _descriptor
    if _descriptor is None:
        _descriptor = os.open(os.environ["EVERYSLOT_BENCH_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_descriptor, struct.pack("d", time.time()))


@durable_task(name="tests.bench.durable_noop")
def durable_noop() -> None:
    """Note the time."""
    _note()


@shared_task(name="tests.bench.plain_noop", ignore_result=True, acks_late=True)
def plain_noop() -> None:
    """Note the time."""
    _note()
