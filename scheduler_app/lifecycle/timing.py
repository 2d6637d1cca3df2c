"""When a job's slots come: the schedule as its row says it, the cursor that follows from it, and a preview in words.

Guaranteed: the very parser that plans a job also checks, previews and explains it, with the same key, anchor, gap and
fold. It would break if a caller parsed a job's text with other arguments than `schedule_of`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast
from zoneinfo import ZoneInfo

from scheduler_app.core.schedule import InvalidSchedule, Schedule, explain, parse
from scheduler_app.core.schedule.zones import find_zone
from scheduler_app.models import Job

_TICK = timedelta(microseconds=1)


def shown_zone(name: str) -> ZoneInfo:
    """The zone to show instants in: UTC for a name that became unknown, since a broken job must still be shown."""
    try:
        return find_zone(name)
    except InvalidSchedule:
        return ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class Preview:
    """`words` is one English sentence; `slots` are UTC. `timezone` is the zone to show them in."""

    words: str
    timezone: str
    slots: tuple[datetime, ...]


def schedule_of(job: Job, timezone: str | None = None) -> Schedule | None:
    """The schedule of a job (in its own zone unless told), or None if it runs on demand; raises InvalidSchedule."""
    if not job.schedule.strip():
        return None
    return parse(
        job.schedule,
        timezone or job.timezone,
        key=job.name,
        anchor=cast(datetime | None, job.anchor),
        gap=cast(Any, job.gap or None),
        fold=cast(Any, job.fold or None),
    )


def first_slot(job: Job, after: datetime) -> datetime | None:
    """The first slot strictly after an instant, within the job's window and `max_runs`; raises InvalidSchedule."""
    found = next_slots(job, after, 1)
    return found[0] if found else None


def next_slots(job: Job, after: datetime, k: int) -> list[datetime]:
    """The first `k` slots strictly after an instant, within the job's window and `max_runs`; raises InvalidSchedule."""
    schedule = schedule_of(job)
    if job.max_runs is not None:
        k = min(k, max(0, job.max_runs - job.recorded_runs))
    if schedule is None:
        return []
    if job.start_at is not None and job.start_at > after:  # else there may be no instant before it: year 1
        after = job.start_at - _TICK
    slots: list[datetime] = []
    slot = schedule.next(after)
    while slot is not None and len(slots) < k and (job.end_at is None or slot <= job.end_at):
        slots.append(slot)
        slot = schedule.next(slot)
    return slots


def preview(job: Job, after: datetime, k: int = 10) -> Preview:
    """What a job (saved or not) will do next; raises InvalidSchedule."""
    if not job.schedule.strip():
        return Preview("On demand: it runs when somebody or something starts it.", job.timezone, ())
    slots = next_slots(job, after, k)
    words = explain(job.schedule, job.timezone, key=job.name)
    if job.schedule.strip().lower().startswith("@every"):
        words = words.partition(", counted from")[0] + "."  # `explain` knows no anchor; the slots below show it
    return Preview(words, job.timezone, tuple(slots))
