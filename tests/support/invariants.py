"""What holds after every race, crash and test with real processes (docs/explanation/crash-table.md, "Invariants")."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from uuid import UUID

from django.db.models import Count, F, Max, Min, Q

from scheduler_app.models import Attempt, JobRun, Worker


def broken_invariants() -> list[str]:
    """What does not hold now, in sentences; may be asked at any time, while programs work too."""
    return [
        *_slots_with_two_runs(),
        *_attempts_out_of_order(),
        *_epochs_that_interleave(),
        *_keys_that_run_twice(),
        *_held_without_a_holder(),
    ]


def unsettled() -> list[str]:
    """What still moves or is left over: runs that are queued, and runs that nobody alive works on."""
    alive = Worker.objects.filter(stopped_at=None).values("id")
    return [
        *(f"run {run.id} is queued" for run in JobRun.objects.filter(status="queued")),
        *(
            f"run {run.id} runs under a worker that is gone"
            for run in JobRun.objects.filter(status="running").exclude(locked_by__in=alive)
        ),
    ]


def _slots_with_two_runs() -> list[str]:
    doubled = (
        JobRun.objects.filter(job__isnull=False)
        .values("job_id", "scheduled_for")
        .annotate(runs=Count("id"))
        .filter(runs__gt=1)
    )
    return [f"job {each['job_id']} has {each['runs']} runs for {each['scheduled_for']}" for each in doubled]


def _attempts_out_of_order() -> list[str]:
    """Ended attempts are 1, 2, 3 … up to the run's count, the running one left out; each has one end."""
    numbers: defaultdict[UUID, list[int]] = defaultdict(list)
    for run_id, number in Attempt.objects.order_by("number").values_list("run_id", "number"):
        numbers[run_id].append(number)
    found = []
    for run in JobRun.objects.filter(Q(id__in=list(numbers)) | Q(attempts__gt=1)):
        ended = run.attempts - (run.status == "running")
        if numbers[run.id] != list(range(1, ended + 1)):
            found.append(f"run {run.id}, {run.status}: attempts {numbers[run.id]} ended, {run.attempts} counted")
    return found


def _epochs_that_interleave() -> list[str]:
    """Nothing was recorded under an older epoch after a newer one began."""
    spans = (
        JobRun.objects.filter(recorded_epoch__isnull=False)
        .values("recorded_epoch")
        .annotate(first=Min("created_at"), last=Max("created_at"))
        .order_by("recorded_epoch")
    )
    return [
        f"epoch {old['recorded_epoch']} recorded until {old['last']}, {new['recorded_epoch']} from {new['first']}"
        for old, new in pairwise(spans)
        if old["last"] > new["first"]
    ]


def _keys_that_run_twice() -> list[str]:
    running = JobRun.objects.filter(status="running").exclude(concurrency_key="")
    doubled = running.values("concurrency_key").annotate(runs=Count("id")).filter(runs__gt=1)
    return [f"{each['runs']} runs of {each['concurrency_key']!r} at once" for each in doubled]


def _held_without_a_holder() -> list[str]:
    active = JobRun.objects.filter(status__in=["queued", "running"]).values("id")
    left = JobRun.objects.filter(held_by__isnull=False).exclude(held_by__in=active).exclude(held_by=F("id"))
    return [f"run {run.id} is held by {run.held_by}, which has ended" for run in left]
