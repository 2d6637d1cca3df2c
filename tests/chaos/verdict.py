"""What must hold once everything is quiet, read from the rows alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db import connection

from scheduler_app.broker.publisher import publisher
from scheduler_app.broker.topology import DEAD_QUEUE
from scheduler_app.conf import conf
from scheduler_app.lifecycle.timing import next_slots
from scheduler_app.local.demo.verdict import Check
from scheduler_app.models import Attempt, DeadLetter, Job, JobRun, SkippedRange
from tests.chaos.jobs import ALONE
from tests.chaos.work import ACCOUNTS, BALANCE, STEPS
from tests.support.invariants import broken_invariants, unsettled

MOST_SLOTS = 10_000


def judge() -> list[Check]:
    """Every check; the promise held if all did."""
    return [
        slots_accounted(),
        invariants(),
        settled(),
        queues_empty(),
        deaths_on_record(),
        money_conserved(),
        steps_done_once(),
        never_two_at_once(),
    ]


def slots_accounted() -> Check:
    """Each slot that was planned is a run, or is within a skipped range; nothing else is there."""
    planned = ran = 0
    faults: list[str] = []
    skipped: defaultdict[int, list[SkippedRange]] = defaultdict(list)
    for gap in SkippedRange.objects.all():
        skipped[gap.job_id].append(gap)
    for job in Job.objects.order_by("id"):
        slots = set(next_slots(job, job.created_at, MOST_SLOTS))
        found = set(job.runs.filter(trigger="schedule").values_list("scheduled_for", flat=True))
        passed = {slot for slot in slots for gap in skipped[job.pk] if gap.first <= slot <= gap.last}
        planned, ran = planned + len(slots), ran + len(found)
        faults += [f"{job.name}: nothing is on record of {slot}" for slot in sorted(slots - found - passed)]
        faults += [f"{job.name}: {slot} is no slot of it" for slot in sorted(found - slots)]
        faults += [f"{job.name}: {slot} has a run and was skipped" for slot in sorted(found & passed)]
    if not planned:
        faults.append("no slot was planned")
    status = Counter(JobRun.objects.values_list("status", flat=True))
    return Check("Each slot is accounted for", f"{planned} planned, {ran} recorded ({_told(status)})", faults)


def invariants() -> Check:
    """Those of docs/explanation/crash-table.md."""
    outcomes = Counter(Attempt.objects.values_list("outcome", flat=True))
    return Check("Runs, attempts and epochs are whole", _told(outcomes), broken_invariants())


def settled() -> Check:
    return Check("Every run has ended", f"{JobRun.objects.count()} runs", unsettled())


def queues_empty() -> Check:
    names = [*conf().queues, DEAD_QUEUE]
    left = {name: depth for name in names if (depth := publisher().depth(name))}
    return Check("No message is left", ", ".join(names), [f"{depth} in {name}" for name, depth in left.items()])


def deaths_on_record() -> Check:
    """Every dead run has its dead letter, and nothing but the poison died for what it did itself."""
    dead = {run.id: run for run in JobRun.objects.filter(status="dead")}
    letters = set(DeadLetter.objects.filter(run_id__isnull=False).values_list("run_id", flat=True))
    faults = [f"run {run} is dead without a letter" for run in dead.keys() - letters]
    faults += [f"run {run.id} of {run.task} is dead: {run.reason}: {run.last_error[-200:]}" for run in dead.values()
               if run.task != "tests.chaos.work.poison"]  # fmt: skip
    faults += [f"a message died: {letter.reason}" for letter in DeadLetter.objects.filter(run_id__isnull=True)]
    return Check("Only the poison is dead, and on record", f"{len(dead)} runs", faults)


def money_conserved() -> Check:
    """Each transfer that succeeded is in the book once, none that did not, and no money was made or lost."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(balance)::bigint FROM chaos_account")
        (total,) = cursor.fetchone() or (0,)
    booked = _effects("transfer")
    succeeded = _succeeded("transfer")
    faults = [] if total == ACCOUNTS * BALANCE else [f"there are {total} where {ACCOUNTS * BALANCE} were"]
    faults += [f"transfer {run} was booked {booked[run]} times" for run in succeeded if booked[run] != 1]
    faults += [f"transfer {run} was booked and did not succeed" for run in booked.keys() - succeeded]
    return Check("Money is conserved", f"{len(succeeded)} transfers", faults)


def steps_done_once() -> Check:
    succeeded = _succeeded("stepwise")
    faults = []
    for step in STEPS:
        done = _effects(step)
        faults += [f"step {step} of {run} was done {times} times" for run, times in done.items() if times > 1]
        faults += [f"step {step} of {run} was not done" for run in succeeded - done.keys()]
    return Check("Each step was done once", f"{len(STEPS) * len(succeeded)} steps", faults)


def never_two_at_once() -> Check:
    """The attempts of a job that forbids it never overlapped, by the database's clock."""
    faults: list[str] = []
    number = 0
    for job in Job.objects.filter(name__regex=f"^({'|'.join(ALONE)}) "):
        spans = sorted(_spans(job))
        number += len(spans)
        faults += [
            f"{job.name}: attempt {b[2]} began at {b[0]}, while {a[2]} ended at {a[1]}" for a, b in pairwise(spans)
            if b[0] < a[1]
        ]  # fmt: skip
    return Check("Never two at once where the policy forbids it", f"{number} attempts", faults)


def _spans(job: Job) -> Iterator[tuple[datetime, datetime, str]]:
    runs = {run.id: run for run in job.runs.filter(attempts__gt=0)}
    ended = {(each.run_id, each.number): each for each in Attempt.objects.filter(run_id__in=list(runs))}
    for each in ended.values():
        yield each.started_at, each.finished_at, f"{each.run_id}/{each.number}"
    for run in runs.values():
        if (run.id, run.attempts) not in ended and run.started_at and run.finished_at:
            yield run.started_at, run.finished_at, f"{run.id}/{run.attempts}"


def _effects(kind: str) -> Counter[UUID]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT run, count(*) FROM chaos_effect WHERE kind = %s GROUP BY run", [kind])
        return Counter(dict(cursor.fetchall()))


def _succeeded(task: str) -> set[UUID]:
    return set(JobRun.objects.filter(task=f"tests.chaos.work.{task}", status="succeeded").values_list("id", flat=True))


def _told(counted: Counter[Any]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counted.items()))
