"""A dead message, as it will be noted."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Letter:
    """`attempt` is the number of the attempt that died. `headers` is JSON; `digest` names a message without run."""

    run_id: UUID | None
    attempt: int | None
    task: str
    queue: str
    reason: str
    headers: str
    body: str
    digest: str
