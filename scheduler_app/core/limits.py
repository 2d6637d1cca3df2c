"""Sizes and defaults that several rooms share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

PAYLOAD_BYTES: Final = 256 * 1024
RESULT_BYTES: Final = 256 * 1024
ERROR_BYTES: Final = 16 * 1024
NESTING_MOST: Final = 200  # levels of arguments and results: readers recurse, here, in PostgreSQL and at callers
LAST_INSTANT: Final = datetime(9999, 1, 1, tzinfo=UTC)  # what is later cannot be shown in every zone
DELAY_MOST: Final = 10 * 366 * 86_400.0  # seconds
PRIORITY_DEFAULT: Final = 4
PRIORITY_MAX: Final = 9
TIME_LIMIT_DEFAULT: Final = 900
MAX_ATTEMPTS_DEFAULT: Final = 5
ATTEMPTS_MOST: Final = 1_000_000_000  # what stands for no limit; a run's own may grow beyond, up to its column's end
WORKER_LOSSES_FREE: Final = 3  # attempts of a run that may die with their worker at no cost
RETRY_BACKOFF_DEFAULT: Final = 1.0
RETRY_BACKOFF_MAX_DEFAULT: Final = 600.0
SHORT_GAP: Final = 100  # gaps of this many slots and more are one SkippedRange
