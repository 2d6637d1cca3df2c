"""Reports: a month's runs as a CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.files.storage import default_storage
from django.db.models import QuerySet

from scheduler_app import current_run, durable_task
from scheduler_app.core.errors import GiveUp
from tasks.files import replace_file

HEAD = (
    "run",
    "job",
    "task",
    "scheduled_for",
    "trigger",
    "status",
    "reason",
    "attempts",
    "started_at",
    "finished_at",
    "seconds",
    "error",
)
FIELDS = (
    "id",
    "job__name",
    "task",
    "scheduled_for",
    "trigger",
    "status",
    "reason",
    "attempts",
    "started_at",
    "finished_at",
    "last_error",
)
MAX_ROWS = 5_000_000
MAX_ERROR = 300  # characters of an error in a cell
CHUNK = 2000


@durable_task(time_limit=1800, long_running=True)
def monthly_csv(month: str = "") -> dict[str, Any]:
    """Write the runs whose slot lies in a month (UTC) to reports/YYYY-MM.csv in Django's storage.

    `month` is `YYYY-MM`; without it, the month of this run's own slot. The file is replaced as a whole, so a second
    execution changes nothing but what happened in between. Returns `path`, `url` and `rows`. Gives up on a month that
    is none and on more than 5 million runs.
    """
    first, after = _bounds(month or current_run().scheduled_for.astimezone(UTC).strftime("%Y-%m"))
    name = f"reports/{first:%Y-%m}.csv"
    rows = 0

    def write(part: Path) -> None:
        nonlocal rows
        with part.open("w", encoding="utf-8", newline="") as file:
            rows = _write(csv.writer(file), _runs(first, after))

    replace_file(name, write)
    return {"path": name, "url": default_storage.url(name), "rows": rows}


def _bounds(month: str) -> tuple[datetime, datetime]:
    """The first instant of the month and of the next one."""
    match = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", month)
    if not match or not 1 <= int(match[1]) < 9999:
        raise GiveUp(f"month must be YYYY-MM, not {month[:40]!r}")
    year, number = int(match[1]), int(match[2])
    return datetime(year, number, 1, tzinfo=UTC), datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)


def _runs(first: datetime, after: datetime) -> QuerySet[Any, tuple[Any, ...]]:
    runs = apps.get_model("scheduler_app", "JobRun")._default_manager
    return runs.filter(scheduled_for__gte=first, scheduled_for__lt=after).order_by("seq").values_list(*FIELDS)


def _write(out: Any, runs: QuerySet[Any, tuple[Any, ...]]) -> int:
    run = current_run()
    out.writerow(HEAD)
    rows = 0
    for rows, found in enumerate(runs.iterator(chunk_size=CHUNK), start=1):
        if rows > MAX_ROWS:
            raise GiveUp(f"more than {MAX_ROWS} runs lie in this month")
        if rows % CHUNK == 0:
            run.check()
        out.writerow(list(_cells(*found)))
    return rows


def _cells(*found: Any) -> Iterator[str]:
    *facts, started, finished, error = found
    seconds = f"{(finished - started).total_seconds():.3f}" if started and finished else ""
    for value in (*facts, started, finished, seconds, error[:MAX_ERROR]):
        yield value.astimezone(UTC).isoformat() if isinstance(value, datetime) else _harmless(str(value or ""))


def _harmless(text: str) -> str:
    """Text that no spreadsheet takes for a formula (OWASP, CSV Injection)."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
