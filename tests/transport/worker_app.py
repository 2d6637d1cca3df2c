"""The Celery application of the system tests: `celery -A tests.transport.worker_app worker`."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Reject
from celery.worker.consumer.gossip import Gossip
from celery.worker.consumer.mingle import Mingle
from kombu import Queue

import scheduler_app.transport  # noqa: F401 - registers the alias

# Celery starts these two only for transports that it names; ours carries them as well.
Gossip.compatible_transports.add("postgresql")
Mingle.compatible_transports.add("postgresql")

DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-delivery-limit": 2}

app = Celery("transport", broker=os.environ["TRANSPORT_BROKER"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_default_queue="work",
    task_queues=[Queue("work", routing_key="work", queue_arguments=DEAD), Queue("dead", routing_key="dead")],
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"lease": float(os.environ.get("TRANSPORT_LEASE", "60"))},
)


def note(line: str) -> None:
    with Path(os.environ["TRANSPORT_NOTES"]).open("a") as notes:
        notes.write(line + "\n")


@app.task(bind=True)
def say(self: Any, word: str) -> None:
    note(f"{word} {self.request.hostname} {self.request.delivery_info['redelivered']}")


@app.task(bind=True)
def hold(self: Any, word: str, seconds: float) -> None:
    """Say that it begins, wait for the file `<notes>.go` or for the time, say that it ended."""
    note(f"{word} begins {self.request.hostname} {self.request.delivery_info['redelivered']}")
    go, pause = Path(os.environ["TRANSPORT_NOTES"] + ".go"), threading.Event()
    for _ in range(int(seconds / 0.05)):
        if go.exists() or pause.wait(0.05):
            break
    note(f"{word} ends {self.request.hostname}")


@app.task
def refuse() -> None:
    raise Reject("bad", requeue=False)


@app.task(bind=True)
def requeue(self: Any) -> None:
    note("requeue")
    raise Reject("again", requeue=True)
