"""What a durable task declares about itself: a pure value, made once by `durable_task(...)`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler_app.core.budget import TimeBudget
from scheduler_app.core.retry import RetryOverrides


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """`signature` is the function's, without `self` of a bound task. `time_limit`, `starting_deadline`: seconds."""

    name: str
    signature: inspect.Signature
    schedule: str = ""
    timezone: str = "UTC"
    job_name: str = ""
    queue: str = "default"
    priority: int | None = None
    retry: RetryOverrides = field(default_factory=RetryOverrides)
    time_limit: int | None = None
    starting_deadline: int | None = None
    budget: TimeBudget = field(default_factory=TimeBudget)
    transactional: bool = False
    long_running: bool = False
    description: str = ""

    def misfit(self, args: Sequence[object], kwargs: Mapping[str, object]) -> str | None:
        """Why these arguments cannot call the task, or None if they fit."""
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            return str(error)
        return None
