"""Dispatch: hand ready runs to the broker. Marked and committed first, then published, then put back if refused.

Guaranteed: a run is marked before its hint can be claimed, and an unconfirmed one is taken back by compare-and-set on
its mark, so that any number of dispatchers do no harm. A process that dies in between leaves a mark without a hint:
such silent runs are published again (`redispatch`). At most `dispatch_window` runs of a queue are published but
unclaimed; the rest waits here, where it can be ordered and cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from scheduler_app.broker.publisher import publisher
from scheduler_app.conf import conf
from scheduler_app.instrument import emit
from scheduler_app.store import dispatch as store
from scheduler_app.store.dispatch import Marked


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What one pass did. `reached` is False if the broker did not answer; `full`: a queue's window is used up.

    `wait` is the seconds until the next run's time comes, None if none waits.
    """

    published: int = 0
    refused: int = 0
    more: bool = False
    full: bool = False
    reached: bool = True
    wait: float | None = None


def dispatch() -> Dispatched:
    """Publish ready runs of every queue, one batch, highest priority first."""
    queues = store.queues_ready()
    if not queues:
        return Dispatched()
    window, batch = conf().dispatch_window, conf().dispatch_batch
    published = store.count_published(queues, window)
    rooms = {queue: min(batch, window - published[queue]) for queue in queues if published[queue] < window}
    full = len(rooms) < len(queues)
    with transaction.atomic():
        marked = store.mark_ready(rooms) if rooms else []
    confirmed, reached = _publish(marked, "run.dispatched")
    if marked:
        counts = [sum(1 for each in marked if each.hint.queue == queue) for queue in rooms]
        more = any(count >= room for count, room in zip(counts, rooms.values(), strict=True))
        return Dispatched(confirmed, len(marked) - confirmed, more=more, full=full, reached=reached, wait=0.0)
    return Dispatched(full=full, wait=store.next_ready(list(rooms)) if rooms else None)


def redispatch() -> int:
    """Publish silent runs again, at most as many as the broker's queues are short of; how many.

    A run that merely waits in a long queue is silent too. So the broker is asked first: while it holds as many
    messages as runs are unclaimed, none of theirs can be missing.
    """
    settings = conf()
    published = store.count_silent(settings.queues, settings.dispatch_window, settings.dispatch_timeout)
    missing = {queue: count - (publisher().depth(queue) or 0) for queue, count in published.items()}
    rooms = {queue: min(count, settings.dispatch_batch) for queue, count in missing.items() if count > 0}
    if not rooms:
        return 0
    with transaction.atomic():
        marked = store.mark_silent(rooms, settings.dispatch_timeout, settings.dispatch_timeout_max)
    return _publish(marked, "run.redispatched")[0]


def _publish(marked: Sequence[Marked], event: str) -> tuple[int, bool]:
    """(how many a queue has for sure, whether the broker answered)."""
    if not marked:
        return 0, True
    broker = publisher()
    confirmed = broker.publish([each.hint for each in marked])
    missing = [each for each in marked if each.hint.run_id not in confirmed]
    reached = broker.answered
    if missing:
        store.put_back(missing, refused=reached)
        emit("run.unpublished", runs=[each.hint.run_id for each in missing], refused=reached)
    if confirmed:
        emit(event, runs=len(confirmed))
    return len(confirmed), reached
