"""What a person decides about runs: start beside others, cancel, redrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from scheduler_app.core.overlap import ActiveRun
from scheduler_app.store.statements import load, rows

_SQL = load("decide.sql")


@dataclass(frozen=True, slots=True)
class Cancels:
    """`ended` were queued and are cancelled, `asked` run and were asked to stop; `passed` counts those that waited."""

    ended: list[UUID]
    asked: list[UUID]
    passed: int


@dataclass(frozen=True, slots=True)
class Allowance:
    """A run that may be redriven. `job_max_attempts` is what its job says, None if nothing; `line` is the job whose
    concurrency policy lets its runs go one after another, None if there is none."""

    run_id: UUID
    task: str
    job_max_attempts: int | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Again:
    """A run to send back with `more` further attempts, `delay` seconds from now; it waits for `holder`."""

    run_id: UUID
    more: int
    delay: float = 0.0
    holder: UUID | None = None


def lock_active_of_job(job_id: int) -> list[ActiveRun]:
    """The job's runs that are not final, locked until the transaction ends."""
    return [ActiveRun(*row) for row in rows(_SQL["lock_active_of_job"], {"job": job_id})]


def hold_run(run_id: UUID, holder: UUID) -> bool:
    """Let a run wait for `holder`; whether it does."""
    return bool(rows(_SQL["hold_run"], {"id": run_id, "holder": holder}))


def cancel_runs(ids: Sequence[UUID], reason: str) -> Cancels:
    """Cancel the active ones of these runs."""
    found = rows(_SQL["cancel_runs"], {"ids": list(ids), "reason": reason})
    ended = [row[0] for row in found if row[1]]
    asked = [row[0] for row in found if not row[1]]
    return Cancels(ended, asked, found[0][2] if found else 0)


def allowances(ids: Sequence[UUID]) -> list[Allowance]:
    """Those of the runs that are dead or cancelled, in the order of recording."""
    return [Allowance(*row) for row in rows(_SQL["allowances"], {"ids": list(ids)})]


def redrive_runs(runs: Sequence[Again], by: str, reason: str) -> list[UUID]:
    """Send runs back; the ids of those that went."""
    params = {
        "ids": [each.run_id for each in runs],
        "more": [each.more for each in runs],
        "holders": [each.holder for each in runs],
        "delays": [each.delay for each in runs],
        "by": by,
        "reason": reason,
    }
    return [row[0] for row in rows(_SQL["redrive_runs"], params)]


def discard_letters(ids: Sequence[int], by: str, reason: str) -> list[int]:
    """Let open dead letters stay dead; the ids of those that were open."""
    return [row[0] for row in rows(_SQL["discard_letters"], {"ids": list(ids), "by": by, "reason": reason})]
