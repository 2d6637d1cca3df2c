"""Whether the promise held: judged from the rows alone, against the slots that the schedules themselves name.

Nothing that the demo did on its way counts here, so it would take a wrong row, or a missing one, to be found out: a run
taken away, a slot run twice, the unique constraint dropped. Each turns the verdict to failure (its tests do just that).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.core.files.storage import default_storage
from django.db import connection
from django.db.models import Min, Q

from scheduler_app.core.states import FINAL, Status
from scheduler_app.lifecycle.timing import next_slots
from scheduler_app.models import Attempt, DeadLetter, Job, JobRun, Worker

CONSTRAINT = "run_one_per_slot"
MOST_SLOTS = 10_000
SHOWN = 5


@dataclass(frozen=True)
class Killed:
    """A worker killed in the middle of a run, and when (the database's clock)."""

    worker: UUID
    run: UUID
    at: datetime


@dataclass(frozen=True)
class Deposed:
    """A leader killed, with its epoch, and when (the database's clock)."""

    epoch: int
    at: datetime


@dataclass
class Story:
    """What the demo did, as far as the rows cannot know it. `full` is the stack with RabbitMQ."""

    added: UUID | None = None
    rolled_back: UUID | None = None
    poison: UUID | None = None
    killed: Killed | None = None
    deposed: Deposed | None = None
    full: bool = False


@dataclass(frozen=True)
class Check:
    """One sentence of the promise, what was seen, and what speaks against it."""

    name: str
    seen: str
    faults: Sequence[str] = field(default=())

    @property
    def held(self) -> bool:
        return not self.faults


def judge(story: Story) -> list[Check]:
    """Every check, on the database that Django is connected to; the promise held if all did."""
    return [
        one_run_per_slot(),
        no_duplicates(),
        nothing_lost(),
        attempts_are_whole(),
        adhoc_ran_once(story),
        dead_with_reason(story),
        retried(),
        killed_run_resumed(story),
        leader_replaced(story),
        report_written(),
        *([message_dead_lettered(story)] if story.full else []),
    ]


def one_run_per_slot() -> Check:
    """Each job's recorded runs are exactly the slots of its schedule from its creation to its `end_at`."""
    planned = recorded = 0
    faults: list[str] = []
    for job in Job.objects.exclude(schedule=""):
        slots = set(next_slots(job, job.created_at, MOST_SLOTS))
        found = set(job.runs.filter(trigger="schedule").values_list("scheduled_for", flat=True))
        planned += len(slots)
        recorded += len(found)
        faults += [f"{job.name}: no run for the slot {slot.isoformat()}" for slot in sorted(slots - found)]
        faults += [f"{job.name}: {slot.isoformat()} is no slot of it" for slot in sorted(found - slots)]
    if not planned:
        faults.append("no slot was planned")
    return Check("One run per slot", f"{planned} slots planned, {recorded} recorded", faults)


def no_duplicates() -> Check:
    """No slot has two runs, no run succeeded twice, and the constraint that forbids it stands."""
    slots = JobRun.objects.filter(trigger="schedule").values_list("job_id", "scheduled_for")
    doubled = [slot for slot, times in Counter(slots).items() if times > 1]
    successes = Attempt.objects.filter(outcome="returned").values_list("run_id", flat=True)
    twice = [run for run, times in Counter(successes).items() if times > 1]
    faults = [f"job {job} has two runs for the slot {slot.isoformat()}" for job, slot in doubled]
    faults += [f"run {run} succeeded twice" for run in twice]
    if not _constraint_stands():
        faults.append(f"the unique constraint {CONSTRAINT} is gone: only luck kept the slots apart")
    return Check("Duplicates", f"{len(doubled) + len(twice)}", faults)


def _constraint_stands() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_constraint WHERE conrelid = %s::regclass AND conname = %s AND contype = 'u'",
            [JobRun._meta.db_table, CONSTRAINT],
        )
        return cursor.fetchone() is not None


def nothing_lost() -> Check:
    """Every run reached an end, and nothing that was planned was skipped."""
    total = JobRun.objects.count()
    ended = Counter(JobRun.objects.values_list("status", flat=True))
    open_runs = list(JobRun.objects.exclude(status__in=sorted(state.value for state in FINAL)))
    faults = [f"run {run.id} of {run.task} is still {run.status}" for run in open_runs]
    if skipped := ended[Status.SKIPPED.value]:
        faults.append(f"{skipped} slots were skipped")
    shown = ", ".join(f"{count} {status}" for status, count in sorted(ended.items()))
    return Check("Lost", f"{len(open_runs)} of {total} runs ({shown})", faults)


def attempts_are_whole() -> Check:
    """The attempts of a run are 1, 2, 3 … without a repeat, each with one end."""
    numbers: dict[UUID, list[int]] = {}
    for run, number in Attempt.objects.order_by("number").values_list("run_id", "number"):
        numbers.setdefault(run, []).append(number)
    faults = [
        f"run {run.id}: attempts {numbers[run.id]}, counted {run.attempts}"
        for run in JobRun.objects.filter(id__in=numbers)
        if numbers[run.id] != list(range(1, run.attempts + 1))
    ]
    tried = sum(JobRun.objects.values_list("attempts", flat=True))
    return Check("Attempts numbered 1, 2, 3 … each with one end", f"{tried} attempts", faults)


def _run(run: UUID | None) -> JobRun | None:
    return None if run is None else JobRun.objects.filter(pk=run).first()


def adhoc_ran_once(story: Story) -> Check:
    """What was called in a transaction that committed ran; what was called in one that rolled back left nothing."""
    name = "Called in a transaction: committed runs once, rolled back never"
    run = _run(story.added)
    faults = []
    if run is None or run.status != Status.SUCCEEDED:
        faults.append("the committed call did not succeed" if run else "the committed call left no run")
    if story.rolled_back is None or _run(story.rolled_back):
        faults.append("the call that was rolled back left a run")
    return Check(name, f"result {run.result}" if run else "no run", faults)


def dead_with_reason(story: Story) -> Check:
    """The poison is dead with its reason and has its dead letter."""
    run = _run(story.poison)
    if run is None or run.status != Status.DEAD:
        return Check("The poison ends dead", "it is not dead", ["the poison run is not dead"])
    faults = [] if run.reason and run.last_error else ["the dead run says no reason"]
    if not DeadLetter.objects.filter(run_id=run.id).exists():
        faults.append("the dead run has no dead letter")
    seen = f"{run.reason} after {run.attempts} attempts: {run.last_error.splitlines()[0]}"
    return Check("The poison ends dead, with the reason", seen, faults)


def retried() -> Check:
    """Runs that failed at first were tried again after a delay, and succeeded."""
    again = JobRun.objects.filter(status=Status.SUCCEEDED, attempts__gte=2, task="tasks.examples.flaky")
    delays = [delay for run in again for delay in _delays(run.id)]
    faults = [] if delays else ["no run was retried"]
    seen = f"{len(again)} runs, after {_seconds(delays)}"
    return Check("Failed attempts are retried with backoff", seen, faults)


def _delays(run: UUID) -> Iterator[float]:
    """Seconds from each attempt's end to the next one's start."""
    tries = list(Attempt.objects.filter(run_id=run).order_by("number"))
    for before, after in pairwise(tries):
        yield (after.started_at - before.finished_at).total_seconds()


def _seconds(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:.1f}" for value in values[:SHOWN])
    return f"{shown}{' …' if len(values) > SHOWN else ''} s"


def killed_run_resumed(story: Story) -> Check:
    """The run whose worker was killed ended on another worker, and the killed attempt is on record."""
    name = "The killed worker's run is taken up by another"
    killed = story.killed
    if killed is None:
        return Check(name, "no worker was killed", ["no worker was killed"])
    lost = Attempt.objects.filter(run_id=killed.run, worker=killed.worker, outcome="worker_lost").first()
    if lost is None:
        return Check(name, "the killed attempt is not on record", ["the killed attempt is not on record as lost"])
    after = Attempt.objects.filter(run_id=killed.run, number=lost.number + 1).first()
    if after is None or after.outcome != "returned" or after.worker == killed.worker:
        return Check(name, "nobody took it up", ["the killed run was not finished by another worker"])
    worker = Worker.objects.filter(id__in=[after.worker]).first()
    late = (after.started_at - killed.at).total_seconds()
    return Check(name, f"attempt {after.number} on {worker or after.worker} after {late:.1f} s")


def leader_replaced(story: Story) -> Check:
    """After the leader was killed another beat recorded, under a higher epoch; the epochs never interleave."""
    name = "The killed leader is replaced"
    if story.deposed is None:
        return Check(name, "no leader was killed", ["no leader was killed"])
    after = JobRun.objects.filter(recorded_epoch__gt=story.deposed.epoch)
    first = after.aggregate(first=Min("created_at"))["first"]
    if first is None:
        return Check(name, "nobody recorded afterwards", ["no run was recorded by another leader"])
    older = Q(recorded_epoch__lte=story.deposed.epoch, created_at__gt=first)
    faults = ["the old leader recorded after the new one began"] if JobRun.objects.filter(older).exists() else []
    late = (first - story.deposed.at).total_seconds()
    return Check(name, f"the next one recorded after {late:.1f} s", faults)


def report_written() -> Check:
    """The newest report is there, whole: as many rows as one of its runs said."""
    name = "The report is a CSV file over the real runs"
    runs = JobRun.objects.filter(task="tasks.reports.monthly_csv", status=Status.SUCCEEDED).order_by("-seq")
    said: list[Any] = [run.result for run in runs]
    if not said or not default_storage.exists(said[0]["path"]):
        return Check(name, "no file", ["no report was written"])
    with default_storage.open(said[0]["path"]) as file:
        rows = sum(1 for _ in file) - 1
    faults = [] if rows and rows in {each["rows"] for each in said} else [f"{rows} rows, which no run says"]
    return Check(name, f"{said[0]['path']}, {rows} rows", faults)


def message_dead_lettered(story: Story) -> Check:
    """RabbitMQ's dead-letter exchange carried the poison's message: its own `x-death` header says so."""
    name = "The poison's message went through the dead-letter exchange"
    letter = DeadLetter.objects.filter(run_id__in=[story.poison]).first()
    deaths: Any = letter.headers.get("x-death") if letter else None
    if not deaths:
        return Check(name, "no x-death header", ["no message of the poison came through the dead-letter exchange"])
    seen = f"x-death: {deaths[0].get('reason')} in queue {deaths[0].get('queue')}, {deaths[0].get('count')} time"
    return Check(name, seen)
