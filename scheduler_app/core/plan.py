"""What becomes of the due slots of one job: which are recorded as runs, which are skipped and why, and the new cursor.

Guaranteed: every slot from the cursor to `now` is decided exactly once, in order, and the cursor never goes back.
One call looks at a bounded number of slots, however long nothing recorded: what is left over says `more`.
It would break if the reasons were not ordered in time: all paused slots come before those past the deadline, these
before the missed ones, these before the young ones. That order is what makes one pass over the slots enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Final
from uuid import UUID

from scheduler_app.core.limits import SHORT_GAP
from scheduler_app.core.overlap import ActiveRun, Placed, arrange
from scheduler_app.core.schedule.base import LATEST, SECOND, Schedule, to_instant, to_micros

RUNS: Final = 1_000  # runs that one call records at most
SCAN: Final = 2_000  # slots of a cron schedule that one call walks through at most
NOTHING: Final = (None,) * 5
CATCH_UP_MOST: Final = 10_000  # the highest `catch_up_limit` that is honoured


class Skip(StrEnum):
    """Why a slot did not run."""

    OVERLAP = "overlap"
    DEADLINE = "deadline"
    CATCH_UP = "catch_up"
    PAUSED = "paused"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Gap:
    """Consecutive slots that will not run; both ends are slots. `slots` lists them while they are few."""

    first: datetime
    last: datetime
    count: int
    reason: str
    slots: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotRun:
    """A run to insert. `scheduled_for` is the slot itself, `run_after` the slot and its jitter."""

    id: UUID
    scheduled_for: datetime
    run_after: datetime
    held_by: UUID | None = None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What planning needs to know of a job. Durations are seconds; `next_run_at` is the cursor.

    `remaining` is how many runs `max_runs` still allows, `gap` the newest range already noted as skipped.
    """

    id: int
    schedule: Schedule
    next_run_at: datetime
    misfire_grace: float = 60
    starting_deadline: float | None = None
    catch_up: str = "latest"
    catch_up_limit: int = 100
    jitter: float = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    paused_until: datetime | None = None
    remaining: int | None = None
    concurrency_policy: str = "allow"
    gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """`skips` are single slots, `ranges` whole gaps; `cancel` and `stop` are earlier runs that `replace` ends.

    `next_run_at` is None when the schedule has ended; `more` says that due slots are left.
    """

    records: tuple[SlotRun, ...] = ()
    skips: tuple[tuple[datetime, str], ...] = ()
    ranges: tuple[Gap, ...] = ()
    cancel: tuple[UUID, ...] = ()
    stop: tuple[UUID, ...] = ()
    next_run_at: datetime | None = None
    more: bool = False


def plan(
    job: JobFacts,
    now: datetime,
    new_id: Callable[[], UUID],
    active: Sequence[ActiveRun] = (),
    *,
    runs: int = RUNS,
    scan: int = SCAN,
) -> Plan:
    """Decide the slots of `job` from its cursor to `now`, at most `runs` runs and about `scan` skipped slots."""
    if job.remaining is not None and job.remaining <= 0:
        return Plan()
    return _punctual(job, now, new_id) or _plan(job, now, new_id, active, runs, scan)


def _punctual(job: JobFacts, now: datetime, new_id: Callable[[], UUID]) -> Plan | None:
    """The plan of a job with nothing special that has one young slot due: what `_plan` says, at a third of the cost."""
    special = (job.remaining, job.start_at, job.end_at, job.paused_until, job.starting_deadline)
    if job.concurrency_policy != "allow" or job.jitter or special != NOTHING:
        return None
    slot, instant = to_micros(job.next_run_at), to_micros(now)
    following = job.schedule.next_micros(slot)
    if (
        following is None
        or not slot <= instant < following <= LATEST
        or instant - slot > job.misfire_grace * SECOND
        or job.schedule.next_micros(slot - 1) != slot
    ):
        return None
    return Plan((SlotRun(new_id(), job.next_run_at, job.next_run_at),), next_run_at=to_instant(following))


def _plan(
    job: JobFacts, now: datetime, new_id: Callable[[], UUID], active: Sequence[ActiveRun], runs: int, scan: int
) -> Plan:
    walk = _Walk(job, to_micros(now), scan)
    chosen = walk.choose(runs)
    arranged = arrange(job.concurrency_policy, chosen, active, new_id)
    gaps = walk.gaps + _neighbours(job.schedule, arranged.skipped)
    placed, following = arranged.placed, walk.at
    if job.remaining is not None and len(placed) >= job.remaining:
        placed, following = placed[: job.remaining], None
        gaps = [gap for gap in gaps if gap.first < placed[-1].slot]
    if following is not None and job.end_at is not None and following > to_micros(job.end_at):
        following = None
    return Plan(
        records=tuple(_run(job, each) for each in placed),
        skips=tuple((slot, gap.reason) for gap in gaps if not _is_range(job, gap) for slot in gap.instants()),
        ranges=tuple(_extended(job, gap) for gap in gaps if _is_range(job, gap)),
        cancel=arranged.cancel,
        stop=arranged.stop,
        next_run_at=None if following is None else to_instant(following),
        more=following is not None and following <= to_micros(now),
    )


@dataclass(slots=True)
class _Gap:
    """A gap in microseconds. A long one is always counted, never listed."""

    first: int
    last: int
    count: int
    reason: str
    slots: list[int]

    def instants(self) -> list[datetime]:
        return [to_instant(slot) for slot in self.slots]


class _Walk:
    """Walks the due slots in order; `at` is the first slot not decided yet, None after the last of all."""

    def __init__(self, job: JobFacts, now: int, scan: int) -> None:
        self.job = job
        self.now = now
        self.scan = scan
        self.gaps: list[_Gap] = []
        start = to_micros(job.next_run_at)
        if job.start_at is not None:
            start = max(start, to_micros(job.start_at))
        self.at = self._following(start - 1)
        self.end = now if job.end_at is None else min(now, to_micros(job.end_at))

    def choose(self, runs: int) -> list[int]:
        """Decide the slots up to the end, as far as the bounds allow; the chosen ones, oldest first."""
        job, stop = self.job, self.end + 1
        paused = min(stop, to_micros(job.paused_until)) if job.paused_until else 0
        if not self._skip(paused, Skip.PAUSED):
            return []
        if job.starting_deadline is not None and not self._skip(
            min(stop, self.now - int(job.starting_deadline * SECOND)), Skip.DEADLINE
        ):
            return []
        young = min(stop, self.now - int(job.misfire_grace * SECOND))
        return self._missed(young, runs) if self._due(young) else self._take(stop, runs)

    def _missed(self, young: int, runs: int) -> list[int]:
        """The missed slots by the job's catch-up, then the young ones as far as `runs` goes."""
        job, stop = self.job, self.end + 1
        first: list[int] = []
        if job.catch_up == "all":
            done = self._skip(young, Skip.LIMIT, keep=min(job.catch_up_limit, CATCH_UP_MOST))
        elif job.catch_up == "latest":
            done = self._skip(stop, Skip.CATCH_UP, keep=1) if not self._any_from(young) else True
            done = done and (not self._any_from(young) or self._skip(young, Skip.CATCH_UP))
        else:
            if job.catch_up == "earliest" and not self._continues():
                first = self._take(young, 1)
            done = self._skip(young, Skip.CATCH_UP)
        return first + self._take(stop, runs - len(first)) if done else first

    def _any_from(self, instant: int) -> bool:
        """Whether a due slot is at or after the instant."""
        following = self._following(instant - 1)
        return following is not None and following <= self.end

    def _continues(self) -> bool:
        """Whether an earlier call left off within this gap, so that its earliest slot has already run."""
        gap = self.job.gap
        return gap is not None and gap.reason == Skip.CATCH_UP and self._following(to_micros(gap.last)) == self.at

    def _following(self, after: int) -> int | None:
        found = self.job.schedule.next_micros(after)
        return None if found is None or found > LATEST else found

    def _due(self, before: int) -> bool:
        return self.at is not None and self.at < before

    def _take(self, before: int, most: int) -> list[int]:
        """Consume up to `most` slots before the instant."""
        taken: list[int] = []
        while self.at is not None and self.at < before and len(taken) < most:
            taken.append(self.at)
            self.at = self._following(self.at)
        return taken

    def _skip(self, before: int, reason: Skip, keep: int = 0) -> bool:
        """Skip the slots before the instant but the newest `keep`; False if the bound came first."""
        if not self._due(before):
            return True
        if self.job.schedule.kind == "interval":
            self._leap(before, reason, keep)
            return True
        ahead = self._take(before, max(self.scan, 2 * keep))
        done = not self._due(before)
        kept = ahead[len(ahead) - keep :] if keep else []
        self._note(ahead[: len(ahead) - len(kept)], reason)
        if kept:
            self.at = kept[0]
        return done

    def _leap(self, before: int, reason: Skip, keep: int) -> None:
        """`_skip` by arithmetic: the slots of an interval are evenly spaced."""
        assert self.at is not None
        first = self.at
        every = (self._following(first) or first + SECOND) - first
        count = (before - 1 - first) // every + 1 - keep
        if count < SHORT_GAP:
            self._note(self._take(before, count), reason)
        else:
            last = first + (count - 1) * every
            self.gaps.append(_Gap(first, last, count, reason, []))
            self.at = self._following(last)

    def _note(self, slots: list[int], reason: Skip) -> None:
        if slots:
            self.gaps.append(_Gap(slots[0], slots[-1], len(slots), reason, slots))


def _neighbours(schedule: Schedule, slots: Sequence[int]) -> list[_Gap]:
    """The overlapping slots as gaps without a foreign slot in between."""
    gaps: list[_Gap] = []
    for slot in slots:
        if gaps and schedule.next_micros(gaps[-1].last) == slot:
            gap = gaps[-1]
            gap.last, gap.count = slot, gap.count + 1
            gap.slots.append(slot)
        else:
            gaps.append(_Gap(slot, slot, 1, Skip.OVERLAP, [slot]))
    return gaps


def _prolongs(job: JobFacts, gap: _Gap) -> bool:
    old = job.gap
    return old is not None and old.reason == gap.reason and job.schedule.next_micros(to_micros(old.last)) == gap.first


def _is_range(job: JobFacts, gap: _Gap) -> bool:
    return gap.count >= SHORT_GAP or _prolongs(job, gap)


def _extended(job: JobFacts, gap: _Gap) -> Gap:
    """The gap as a range; one that goes on where the last range ended becomes that range, longer."""
    first, count = to_instant(gap.first), gap.count
    if job.gap is not None and _prolongs(job, gap):
        first, count = job.gap.first, job.gap.count + gap.count
    return Gap(first, to_instant(gap.last), count, gap.reason)


def _run(job: JobFacts, placed: Placed) -> SlotRun:
    slot = to_instant(placed.slot)
    run_after = to_instant(placed.slot + _jitter(job, placed.slot)) if job.jitter else slot
    return SlotRun(placed.id, slot, run_after, placed.held_by)


def _jitter(job: JobFacts, slot: int) -> int:
    """Microseconds, the same for ever for a job and slot, below both `jitter` and the distance to the next slot."""
    following = job.schedule.next_micros(slot)
    room = int(job.jitter * SECOND)
    if following is not None:
        room = min(room, following - slot)
    digest = blake2b(f"{job.id}:{slot}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) * room >> 64
