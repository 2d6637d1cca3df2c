"""Claim and finish: what the worker's ledger writes, one batch in one commit.

A claim is one compare-and-set that raises the attempt number; a finish is one compare-and-set under the attempt's
fence. Both of a batch share a transaction, so a claim never takes the place of a finish that did not commit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from django.db import DataError, transaction

from scheduler_app.conf import conf
from scheduler_app.core.errors import LostGround
from scheduler_app.core.outcome import Ending
from scheduler_app.core.states import Status
from scheduler_app.core.text import note, storable
from scheduler_app.instrument import emit
from scheduler_app.lifecycle.follow import insert_successors
from scheduler_app.store.enqueue import notify_runs
from scheduler_app.store.work import (
    Claimed,
    Done,
    Finish,
    Wanted,
    claim_runs,
    finish_attempts,
    hold_busy,
)


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch did. A finish that is not in `done` was void; a wanted run in no list was refused."""

    done: dict[UUID, Done] = field(default_factory=dict)
    claimed: dict[UUID, Claimed] = field(default_factory=dict)
    skipped: frozenset[UUID] = frozenset()


def write(worker: UUID, finishes: Sequence[Finish], wanted: Sequence[Wanted]) -> Written:
    """Finish and claim in one transaction; wakes the dispatcher after commit if there is something for it."""
    sent_back = 0
    with transaction.atomic():
        done = finish_attempts(finishes) if finishes else []
        followers = insert_successors(done, finishes) if done else 0
        claims = claim_runs(worker, conf().lease, wanted) if wanted else None
        if claims and len(claims.claimed) + len(claims.skipped) < len(wanted):
            got = {claim.run_id for claim in claims.claimed}.union(claims.skipped)
            _, sent_back = hold_busy([w for w in wanted if w.run_id not in got])
    _announce(done, finishes)
    if followers or sent_back or any(d.status is Status.QUEUED or d.released for d in done):
        notify_runs()
    if claims is None:
        return Written({d.run_id: d for d in done})
    return Written({d.run_id: d for d in done}, {c.run_id: c for c in claims.claimed}, frozenset(claims.skipped))


def write_apart(worker: UUID, finishes: Sequence[Finish], wanted: Sequence[Wanted], why: str) -> Written:
    """The same one by one, for a batch of which PostgreSQL refused a value: nobody pays for a neighbour's.

    An ending that is refused alone too is written without its result and texts, `why` in their place; a claim is left
    out. What even then is refused stays as it is: its worker's keeper ends it as lost.
    """
    done: dict[UUID, Done] = {}
    claimed: dict[UUID, Claimed] = {}
    skipped: set[UUID] = set()
    for finish in finishes:
        for version in (finish, _plain(finish, why)):
            if written := _taken(worker, [version], []):
                done |= written.done
                break
        else:
            emit("run.finish_refused", run=finish.run_id, attempt=finish.attempt, error=why)
    for each in wanted:
        if written := _taken(worker, [], [each]):
            claimed |= written.claimed
            skipped |= written.skipped
    return Written(done, claimed, frozenset(skipped))


def _taken(worker: UUID, finishes: Sequence[Finish], wanted: Sequence[Wanted]) -> Written | None:
    try:
        return write(worker, finishes, wanted)
    except DataError:
        return None


def _plain(finish: Finish, why: str) -> Finish:
    said = storable(f"PostgreSQL refused it: {why}")
    ending = finish.ending
    result = None if ending.result is None else json.dumps(note(said))
    return replace(finish, ending=replace(ending, result=result, error=ending.error and said, traceback=""))


def _announce(done: Sequence[Done], finishes: Sequence[Finish]) -> None:
    ended = {d.run_id: d for d in done}
    for finish in finishes:
        if finish.run_id in ended:
            emit("run.finished", run=finish.run_id, attempt=finish.attempt, ending=finish.ending)
        else:
            emit("run.finish_void", run=finish.run_id, attempt=finish.attempt, way=finish.ending.way)


def finish_inside(run_id: UUID, attempt: int, worker: UUID, ending: Ending) -> None:
    """Finish an attempt in the open transaction of its own work; the dispatcher is woken after its commit."""
    finish = Finish(run_id, attempt, worker, ending)
    done = finish_attempts([finish])
    if not done:
        raise LostGround(f"attempt {attempt} of run {run_id} is no longer the current one; its work is rolled back")
    if insert_successors(done, [finish]) or done[0].released:
        transaction.on_commit(notify_runs, robust=True)
