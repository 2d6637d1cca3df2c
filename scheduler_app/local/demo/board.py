"""The live board: programs, jobs and what just happened. Into a pipe (CI) only the events are printed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

from django.db.models import Count, Q
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from scheduler_app.core.states import Status
from scheduler_app.local.demo.scene import BEATS, leading
from scheduler_app.local.demo.verdict import Check
from scheduler_app.local.stack import Stack
from scheduler_app.models import Attempt, Job, JobRun, Term, Worker

EVENTS: Final = 10


class Board:
    """Shown while it is entered; `refresh` reads the database."""

    def __init__(self, stack: Stack, seconds: float, console: Console | None = None) -> None:
        self.console = console or Console()
        self._stack, self._seconds = stack, seconds
        self._events: deque[str] = deque(maxlen=EVENTS)
        self._told: set[tuple[Any, int]] = set()
        self._epoch = 0
        self._began = time.monotonic()
        self._live = Live(console=self.console, refresh_per_second=4, auto_refresh=False)

    def __enter__(self) -> Board:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def tell(self, sentence: str, style: str = "bold") -> None:
        """Something that the demo did or noticed; `sentence` may hold anything."""
        self._tell(f"[{style}]{escape(sentence)}[/]")

    def refresh(self) -> None:
        """Read the rows, tell what is new, and draw."""
        self._tell_terms()
        self._tell_attempts()
        if self.console.is_terminal:
            self._live.update(Group(self._head(), self._programs(), self._jobs(), self._happened()), refresh=True)

    def _tell(self, markup: str) -> None:
        line = f"[dim]{self.elapsed:5.1f} s[/]  {markup}"
        self._events.append(line)
        if not self.console.is_terminal:
            self.console.print(line, soft_wrap=True)

    def _tell_terms(self) -> None:
        term = Term.objects.first()
        if term is not None and term.epoch != self._epoch and (leader := leading(self._stack)):
            self._epoch = term.epoch
            self.tell(f"{leader} leads, epoch {term.epoch}", "green")

    def _tell_attempts(self) -> None:
        """Endings that are worth a line: of attempts that failed or were lost, and of what was tried again."""
        names = _names()
        fresh = Attempt.objects.order_by("-finished_at")[:40]
        for attempt in reversed(fresh):
            if (attempt.run_id, attempt.number) in self._told:
                continue
            self._told.add((attempt.run_id, attempt.number))
            run = JobRun.objects.select_related("job").get(pk=attempt.run_id)
            self._tell(_ending(attempt, run, names.get(attempt.worker, "?")))

    def _head(self) -> Text:
        left = max(0.0, self._seconds - self.elapsed)
        return Text(f"Everyslot   every slot gets its run   {left:4.0f} s to go", style="bold")

    def _programs(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("program", "pid", "state"):
            table.add_column(column, min_width=10)
        leader = leading(self._stack)
        busy = self._busy()
        for name, program in self._stack.programs.items():
            if not program.running:
                state = "[red]killed[/]"
            elif name in BEATS:
                state = "[green]leads[/]" if name == leader else "stands by"
            else:
                state = ", ".join(busy.get(name, ())) or "[dim]idle[/]"
            table.add_row(name, str(program.pid), state)
        return table

    def _busy(self) -> dict[str, list[str]]:
        names = _names()
        busy: dict[str, list[str]] = {}
        for run in JobRun.objects.filter(status=Status.RUNNING).select_related("job").order_by("started_at"):
            progress = f" {run.progress:.0f} %" if run.progress else ""
            busy.setdefault(names.get(run.locked_by, "?"), []).append(f"[cyan]{_name(run)}[/]{progress}")
        return busy

    def _jobs(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("job")
        for column in ("recorded", "queued", "running", "succeeded", "dead", "retried"):
            table.add_column(column, justify="right")
        counted = {
            "recorded": Count("runs"),
            **{s.value: Count("runs", filter=Q(runs__status=s)) for s in (Status.QUEUED, Status.RUNNING)},
            **{s.value: Count("runs", filter=Q(runs__status=s)) for s in (Status.SUCCEEDED, Status.DEAD)},
            "retried": Count("runs", filter=Q(runs__attempts__gt=1)),
        }
        for job in Job.objects.order_by("id").annotate(**counted).values("name", *counted):
            table.add_row(*(str(value) for value in job.values()))
        return table

    def _happened(self) -> Text:
        return Text.from_markup("\n".join(self._events))


def _names() -> dict[Any, str]:
    """Worker -> the name that this demo gave it."""
    return {worker.id: worker.name.partition("@")[0] for worker in Worker.objects.all()}


def _name(run: JobRun) -> str:
    return escape(run.job.name if run.job else run.task.rpartition(".")[2])


def _ending(attempt: Attempt, run: JobRun, worker: str) -> str:
    who = f"{_name(run)}, attempt {attempt.number} on {escape(worker)}"
    if run.status == Status.DEAD and run.attempts == attempt.number:
        return f"{who}: [red]dead, {escape(run.reason)}[/]: {escape(attempt.error.partition(chr(10))[0])}"
    if attempt.outcome == "retry":
        delay = (run.run_after - attempt.finished_at).total_seconds()
        later = f" in {delay:.1f} s" if run.attempts == attempt.number and delay > 0 else ""
        return f"{who}: [yellow]failed, tried again{later}[/]"
    if attempt.outcome == "returned":
        return f"{who}: [green]succeeded[/]"
    return f"{who}: [red]{escape(attempt.error.partition(chr(10))[0] or attempt.outcome)}[/]"


def show_verdict(console: Console, checks: Sequence[Check]) -> bool:
    """Each check in a line, its faults below it, and the verdict last, which comes back."""
    console.print()
    for check in checks:
        mark = "[green]held  [/]" if check.held else "[red]BROKEN[/]"
        console.print(f"  {mark}  {escape(check.name)}: {escape(check.seen)}", soft_wrap=True)
        for fault in list(check.faults)[:10]:
            console.print(f"            [red]{escape(fault)}[/]", soft_wrap=True)
        if len(check.faults) > 10:
            console.print(f"            [red]… and {len(check.faults) - 10} more[/]")
    console.print()
    held = all(check.held for check in checks)
    if held:
        console.print("[bold green]The promise held: every slot got its run, and nothing was done twice.[/]")
    else:
        console.print("[bold red]The promise did not hold.[/]")
    return held
