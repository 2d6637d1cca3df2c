"""How long a run may take over all its attempts. Pure; seconds from the start of its first attempt."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scheduler_app.core.limits import DELAY_MOST
from scheduler_app.core.retry import is_seconds


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """`run_timeout` kills what still runs then; after `retry_for` no retry begins. None: no end.

    Raises ValueError for what is no number of seconds above 0, or more than `DELAY_MOST`.
    """

    run_timeout: float | None = None
    retry_for: float | None = None

    def __post_init__(self) -> None:
        for name in ("run_timeout", "retry_for"):
            seconds = getattr(self, name)
            if seconds is not None and not (is_seconds(seconds) and 0 < seconds <= DELAY_MOST):
                raise ValueError(
                    f"{name} must be a number of seconds above 0, at most {DELAY_MOST:.0f}, not {seconds!r}"
                )

    def attempt_left(self, elapsed: float) -> float:
        """Seconds that an attempt may take which starts now; 0 or less if none may start."""
        return math.inf if self.run_timeout is None else self.run_timeout - elapsed

    def retry_left(self, elapsed: float) -> float:
        """Seconds within which a retry must begin; 0 or less if none may."""
        ends = [end for end in (self.run_timeout, self.retry_for) if end is not None]
        return min(ends, default=math.inf) - elapsed
