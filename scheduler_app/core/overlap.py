"""What a slot does while an earlier run of its job is queued or running.

Guaranteed: under `forbid` and `replace` at most one new run is free to start; what waits names the run it waits for.
The decision is right only while the active runs cannot change, so the caller locks them first (lifecycle/record.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run of the job that is not final; `running` once a worker has claimed it."""

    id: UUID
    running: bool


@dataclass(frozen=True, slots=True)
class Placed:
    """A slot (microseconds) that gets the run `id`, held by the run `held_by` if that must end first."""

    slot: int
    id: UUID
    held_by: UUID | None = None


@dataclass(frozen=True, slots=True)
class Arrangement:
    """`skipped` slots overlap; `cancel` names unstarted runs to cancel, `stop` running ones to ask to stop."""

    placed: tuple[Placed, ...] = ()
    skipped: tuple[int, ...] = ()
    cancel: tuple[UUID, ...] = ()
    stop: tuple[UUID, ...] = ()


def arrange(policy: str, slots: Sequence[int], active: Sequence[ActiveRun], new_id: Callable[[], UUID]) -> Arrangement:
    """Apply a concurrency policy to the slots to run, oldest first; `active` is in the order of recording."""
    if not slots or policy == "allow":
        return Arrangement(tuple(Placed(slot, new_id()) for slot in slots))
    if policy == "replace":
        return _replace(slots, active, new_id())
    room = {"forbid": 1, "queue_one": 2, "queue_all": len(active) + len(slots)}[policy]
    return _line_up(slots, active, new_id, room)


def _replace(slots: Sequence[int], active: Sequence[ActiveRun], run_id: UUID) -> Arrangement:
    """The newest slot takes the place of everything before it, the other new slots included."""
    running = [run.id for run in active if run.running]
    return Arrangement(
        placed=(Placed(slots[-1], run_id, running[-1] if running else None),),
        skipped=tuple(slots[:-1]),
        cancel=tuple(run.id for run in active if not run.running),
        stop=tuple(running),
    )


def _line_up(slots: Sequence[int], active: Sequence[ActiveRun], new_id: Callable[[], UUID], room: int) -> Arrangement:
    """Each run waits for the one before it; `room` counts the active runs, new ones included."""
    line = [run.id for run in active]
    placed: list[Placed] = []
    for slot in slots[: max(0, room - len(line))]:
        placed.append(Placed(slot, new_id(), line[-1] if line else None))
        line.append(placed[-1].id)
    return Arrangement(placed=tuple(placed), skipped=tuple(slots[len(placed) :]))
