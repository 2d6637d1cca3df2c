"""Cancel: a queued run ends at once, a running one is asked to stop.

Guaranteed: compare-and-set on the state, so a run that ended meanwhile keeps its end; what waited for a cancelled run
waits for that run's own predecessor, or becomes free. A task stops when it looks (`current_run().cancelled`); one that
returns first has succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import transaction

from scheduler_app.instrument import emit
from scheduler_app.store.decide import Cancels, cancel_runs
from scheduler_app.store.enqueue import notify_runs


def cancel(run_ids: Sequence[UUID], by: str) -> Cancels:
    """Cancel these runs; what is in neither list of the answer was final already, or asked to stop before."""
    with transaction.atomic():
        done = cancel_runs(run_ids, "requested")
        if done.passed:
            transaction.on_commit(notify_runs, robust=True)
    emit("run.cancelled", ended=done.ended, asked=done.asked, by=by)
    return done
