"""What each of Celery's pools cannot keep of the promise, in the words of both the system check and the worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PREFORK: Final = ("prefork", "processes", "celery.concurrency.prefork")
GREEN: Final = ("gevent", "eventlet")
SHORT: Final = {"celery.concurrency.thread": "threads", "celery.concurrency.solo": "solo"} | {
    f"celery.concurrency.{name}": name for name in GREEN
}


@dataclass(frozen=True, slots=True)
class Objection:
    """What is wrong with a pool and how to mend it; no worker may start on a `forbidden` one."""

    fault: str
    hint: str
    forbidden: bool

    def __str__(self) -> str:
        return f"{self.fault}. {self.hint}"


def objection(pool: str) -> Objection | None:
    """What speaks against a pool, given by Celery's short name or by the path of its class."""
    module = pool.removesuffix("TaskPool").rstrip(":.")
    name = SHORT.get(module, pool)
    if module in PREFORK:
        return None
    if name in GREEN:
        hint = "Use prefork: leave CELERY_WORKER_POOL and the option --pool out."
        return Objection(f"the pool {name} breaks leases and time limits", hint, forbidden=True)
    hint = "Use prefork where a task may hang or crash: only it can kill a task and survive its death."
    return Objection(f"the pool {name} has not the full guarantee", hint, forbidden=False)
