"""Redrive: send dead or cancelled runs back to the queue, as the same run with further attempts.

Guaranteed: compare-and-set on the state, so two people redriving at once send a run back once; `attempts` never goes
down, so a message or an attempt of its earlier life stays void. Where a job's policy is not `allow`, a run that comes
back waits for the job's last active run, so that two never run at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db import transaction

from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.core.limits import ATTEMPTS_MOST, DELAY_MOST
from scheduler_app.core.retry import RetryOverrides, resolve
from scheduler_app.instrument import emit
from scheduler_app.lifecycle import catalog
from scheduler_app.models import Job
from scheduler_app.store.decide import Again, Allowance, allowances, lock_active_of_job, redrive_runs
from scheduler_app.store.enqueue import notify_runs

BATCH = 500


def redrive(
    run_ids: Sequence[UUID], by: str, *, more: int | None = None, reason: str = "", rate: float | None = None
) -> list[UUID]:
    """Send these runs back, each with `more` further attempts (as many as its job or task allows a new run, unless
    given); the ids of those that went: a run that is neither dead nor cancelled stays as it is.

    With a `rate` (runs a second) they are not all due at once, so that what killed them is not killed again by them all
    together: each has its own time on its row, and nobody has to stay and count.
    Raises InvalidDefinition if `more` is not 1 to 1,000,000,000, or `rate` is not above 0.
    """
    if more is not None and not 1 <= more <= ATTEMPTS_MOST:
        raise InvalidDefinition("max_attempts", f"must be raised by 1 to {ATTEMPTS_MOST}")
    if rate is not None and not (rate > 0 and len(run_ids) / rate <= DELAY_MOST):
        raise InvalidDefinition("rate", f"must be above 0 and bring the last run within {DELAY_MOST:.0f} seconds")
    sent: list[UUID] = []
    for start in range(0, len(run_ids), BATCH):
        part = run_ids[start : start + BATCH]
        delays = {run: (start + place) / rate if rate else 0.0 for place, run in enumerate(part)}
        sent += _redrive(delays, by, more, reason)
    emit("run.redriven", runs=sent, by=by)
    return sent


def _redrive(delays: Mapping[UUID, float], by: str, more: int | None, reason: str) -> list[UUID]:
    with transaction.atomic():
        wanted = allowances(list(delays))
        last = _last_in_line({each.line for each in wanted if each.line is not None})
        runs = []
        for each in wanted:
            runs.append(Again(each.run_id, more or _as_new(each), delays[each.run_id], last.get(each.line)))
            if each.line is not None:
                last[each.line] = each.run_id
        sent = redrive_runs(runs, by[:200], reason[:500])
        if sent:
            transaction.on_commit(notify_runs, robust=True)
    return sent


def _last_in_line(jobs: set[int]) -> dict[int | None, UUID]:
    """The last active run of each job, both locked: under these jobs' policies a run that comes back waits for it."""
    locked = Job.objects.select_for_update().filter(pk__in=jobs).order_by("pk").values_list("pk", flat=True)
    lines = {job: lock_active_of_job(job) for job in locked}
    return {job: active[-1].id for job, active in lines.items() if active}


def _as_new(run: Allowance) -> int:
    """As many attempts as a new run of the job or task gets."""
    options = catalog.find(run.task)
    declared = [options.retry] if options else []
    return resolve(RetryOverrides(run.job_max_attempts), *declared).max_attempts
