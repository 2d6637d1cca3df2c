"""What happens in the demo, and when: jobs of every few seconds, calls from code, a worker killed, a leader killed.

Each step waits for what it needs (a run in the middle of its work, a leader that leads) and is done once. What is
called here is called as a user's code would do it, transactions included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from celery import current_app
from django.db import transaction

from scheduler_app.core.states import Status
from scheduler_app.lifecycle import define
from scheduler_app.local.demo.verdict import Deposed, Killed, Story
from scheduler_app.local.stack import Stack
from scheduler_app.models import JobRun, Term, Worker
from scheduler_app.store.define import database_now

BEATS: Final = ("beat-1", "beat-2")
WORKERS: Final = ("worker-1", "worker-2", "worker-3")
LONG: Final = 6.0  # seconds of the run whose worker is killed
JOBS: Final[tuple[Mapping[str, Any], ...]] = (
    {"name": "heartbeat", "task": "tasks.examples.ok", "schedule": "@every 1s", "payload": {"said": "still here"}},
    {"name": "flaky service", "task": "tasks.examples.flaky", "schedule": "@every 3s", "payload": {"fail_times": 2}},
    {"name": "slow export", "task": "tasks.examples.slow", "schedule": "@every 4s", "payload": {"seconds": 2}},
    {"name": "runs of the month", "task": "tasks.reports.monthly_csv", "schedule": "@every 5s", "queue": "slow"},
)


def define_jobs(jobs: Iterable[Mapping[str, Any]] = JOBS, until: datetime | None = None) -> None:
    """The jobs of the demo, or some of them; their last slot is at or before `until`."""
    for fields in jobs:
        define.create({**fields, "end_at": until}, origin="admin", by="demo")


@dataclass
class Step:
    """At `at` (a share of the demo's time) or later, as soon as `ready` says so."""

    at: float
    act: Callable[[], str | None]
    """Does it and says so in a sentence, or returns None while it is too early."""
    done: bool = False


class Scene:
    """The steps, on a stack whose programs it kills."""

    def __init__(self, stack: Stack, full: bool) -> None:
        self.story = Story(full=full)
        self._stack = stack
        self._long: UUID | None = None
        self._steps = [
            Step(0.05, self._call),
            Step(0.08, self._call_and_roll_back),
            Step(0.10, self._poison),
            Step(0.20, self._begin_long),
            Step(0.24, self._kill_worker),
            Step(0.60, self._kill_leader),
        ]

    @property
    def over(self) -> bool:
        return all(step.done for step in self._steps)

    def act(self, share: float) -> list[str]:
        """Do what is due at this share of the time; what was done, in sentences."""
        said = []
        for step in self._steps:
            if step.done or step.at > share:
                continue
            words = step.act()
            if words is None:
                break
            step.done = True
            said.append(words)
        return said

    def _call(self) -> str:
        with transaction.atomic():
            self.story.added = UUID(_task("add").delay(20, 22).id)
        return "code calls add.delay(20, 22) inside a transaction, and commits"

    def _call_and_roll_back(self) -> str:
        with transaction.atomic():
            self.story.rolled_back = UUID(_task("add").delay(1, 1).id)
            transaction.set_rollback(True)
        return "code calls add.delay(1, 1) inside a transaction, and rolls back"

    def _poison(self) -> str:
        self.story.poison = UUID(_task("poison").delay("no attempt of this can work").id)
        return "code calls poison.delay(): it will fail at every attempt"

    def _begin_long(self) -> str:
        self._long = UUID(_task("slow").apply_async(kwargs={"seconds": LONG}, priority=9).id)
        return f"code calls slow.delay(seconds={LONG:.0f})"

    def _kill_worker(self) -> str | None:
        """In the middle: a second after its start."""
        run = JobRun.objects.filter(id__in=[self._long], status=Status.RUNNING).first()
        if run is None or run.started_at is None or run.locked_by is None:
            return None
        if database_now() - run.started_at < timedelta(seconds=1):
            return None
        name = Worker.objects.get(pk=run.locked_by).name.partition("@")[0]
        self._stack.kill(name)
        self.story.killed = Killed(run.locked_by, run.id, database_now())
        return f"SIGKILL to {name} in the middle of slow(seconds={LONG:.0f}), attempt {run.attempts}"

    def _kill_leader(self) -> str | None:
        leader = leading(self._stack)
        if leader is None:
            return None
        epoch = Term.objects.get().epoch
        self._stack.kill(leader)
        self.story.deposed = Deposed(epoch, database_now())
        return f"SIGKILL to {leader}, the leader of epoch {epoch}"


def _task(name: str) -> Any:
    """A task of the project, which `current_app` has imported: this package itself knows nothing of the project."""
    return current_app.tasks[f"tasks.examples.{name}"]


def leading(stack: Stack) -> str | None:
    """Which beat holds the term: its holder's name carries the process id."""
    term = Term.objects.first()
    parts = term.holder.split(":") if term else []
    pid = int(parts[-2]) if len(parts) >= 3 and parts[-2].isdigit() else None
    return next((name for name in BEATS if pid is not None and stack.programs[name].pid == pid), None)
