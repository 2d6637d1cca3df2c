"""Claims and finishes, by the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from scheduler_app.core.outcome import Ending
from scheduler_app.core.retry import RetryOverrides
from scheduler_app.core.states import Status
from scheduler_app.store.statements import hot_rows, load, rows

_SQL = load("work.sql")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A hint that arrived: claim this run, but only at this number of attempts."""

    run_id: UUID
    attempt: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that is ours now. `args` and `payload` are JSON text; `time_limit` is seconds, and so is `elapsed`, from
    the start of the run's first attempt to that of this one."""

    run_id: UUID
    attempt: int
    max_attempts: int
    args: str
    payload: str
    scheduled_for: datetime
    time_limit: int
    started_at: datetime
    job_name: str
    elapsed: float
    job_retry: RetryOverrides


@dataclass(frozen=True, slots=True)
class Claims:
    claimed: list[Claimed]
    skipped: list[UUID]


@dataclass(frozen=True, slots=True)
class Finish:
    """An attempt that ended, under its fence."""

    run_id: UUID
    attempt: int
    worker: UUID
    ending: Ending


@dataclass(frozen=True, slots=True)
class Done:
    """A finish that took effect. `canvas` is JSON text or None; `released` counts what waited for the batch."""

    run_id: UUID
    status: Status
    attempt: int
    canvas: str | None
    priority: int
    released: int


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt under a worker's name, `elapsed` seconds after its run's first one started; `worker_losses` of the
    earlier ones died with their worker."""

    run_id: UUID
    attempt: int
    max_attempts: int
    job_retry: RetryOverrides
    task: str
    elapsed: float
    worker_losses: int


def claim_runs(worker: UUID, lease: float, wanted: Sequence[Wanted]) -> Claims:
    """Claim for `worker`; `lease` is seconds. What is in neither list was refused."""
    params = {
        "worker": worker,
        "lease": lease,
        "ids": [w.run_id for w in wanted],
        "attempts": [w.attempt for w in wanted],
    }
    claimed: list[Claimed] = []
    skipped: list[UUID] = []
    for row in hot_rows(_SQL["claim_runs"], params):
        if row[1] == Status.SKIPPED:
            skipped.append(row[0])
            continue
        facts = (row[0], *row[2:11], RetryOverrides(None, *row[11:14]))
        claimed.append(Claimed(*facts))
    return Claims(claimed, skipped)


def hold_busy(wanted: Sequence[Wanted]) -> tuple[int, int]:
    """Let refused runs with a taken concurrency key wait; (held, sent back to the dispatcher)."""
    found = rows(_SQL["hold_busy"], {"ids": [w.run_id for w in wanted], "attempts": [w.attempt for w in wanted]})
    held = sum(1 for row in found if row[1])
    return held, len(found) - held


def finish_attempts(finishes: Sequence[Finish]) -> list[Done]:
    """Write the endings; those whose fence no longer holds do not come back."""
    endings = [f.ending for f in finishes]
    params = {
        "ids": [f.run_id for f in finishes],
        "attempts": [f.attempt for f in finishes],
        "workers": [f.worker for f in finishes],
        "ways": [e.way.value for e in endings],
        "statuses": [e.status.value for e in endings],
        "reasons": [e.reason for e in endings],
        "delays": [e.delay for e in endings],
        "extras": [e.extra_attempts for e in endings],
        "errors": [e.error for e in endings],
        "tracebacks": [e.traceback for e in endings],
        "results": [e.result for e in endings],
    }
    return [Done(r[0], Status(r[1]), *r[2:]) for r in hot_rows(_SQL["finish_attempts"], params)]


def running_of_worker(worker: UUID, limit: int = 1000) -> list[Running]:
    """What runs under this worker's name."""
    found = rows(_SQL["running_of_worker"], {"worker": worker, "limit": limit})
    return [Running(r[0], r[1], r[2], RetryOverrides(None, r[3], r[4], r[5]), *r[6:]) for r in found]


def note_progress(run_id: UUID, attempt: int, worker: UUID, percent: float | None, message: str) -> bool | None:
    """Write progress; whether a cancel was asked for, or None if the attempt is no longer the current one."""
    params = {"id": run_id, "attempt": attempt, "worker": worker, "percent": percent, "message": message}
    found = rows(_SQL["note_progress"], params)
    return found[0][0] if found else None


def hold_attempt(run_id: UUID, attempt: int, worker: UUID) -> bool:
    """Lock the run for this transaction; False if the attempt is not the current one."""
    return bool(rows(_SQL["hold_attempt"], {"id": run_id, "attempt": attempt, "worker": worker}))


def wants_stop(run_id: UUID, attempt: int, worker: UUID) -> bool:
    """Whether the attempt should stop: a cancel was asked for, or it is not the current one."""
    found = rows(_SQL["wants_stop"], {"id": run_id, "attempt": attempt, "worker": worker})
    return bool(found[0][0]) if found else True
