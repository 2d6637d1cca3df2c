"""The month's report over real runs."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from scheduler_app.core.errors import GiveUp
from scheduler_app.testing import run_as
from tasks import reports
from tests.support.definitions import a_job, a_run, known_tasks, options

pytestmark = pytest.mark.django_db
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_report_has_exactly_the_runs_whose_slot_lies_in_the_month(media: Path) -> None:
    with known_tasks(options()):
        job = a_job()
    first = a_run(job, scheduled_for=NOVEMBER, status="succeeded")
    last = a_run(job, scheduled_for=datetime(2026, 12, 1, tzinfo=UTC) - timedelta(microseconds=1))
    a_run(job, scheduled_for=NOVEMBER - timedelta(microseconds=1))
    a_run(job, scheduled_for=datetime(2026, 12, 1, tzinfo=UTC))
    done = run_as(reports.monthly_csv, "2026-11")
    assert done == {"path": "reports/2026-11.csv", "url": "/media/reports/2026-11.csv", "rows": 2}
    found = lines(media / "reports" / "2026-11.csv")
    assert [line["run"] for line in found] == [str(first.id), str(last.id)]
    assert {line["job"] for line in found} == {"report"}
    assert [line["status"] for line in found] == ["succeeded", "queued"]


def test_without_a_month_the_slot_says_which(media: Path) -> None:
    a_run(scheduled_for=NOVEMBER)
    done = run_as(reports.monthly_csv, scheduled_for=datetime(2026, 11, 30, 23, 59, tzinfo=UTC))
    assert (done["path"], done["rows"]) == ("reports/2026-11.csv", 1)


def test_december_ends_with_the_year(media: Path) -> None:
    a_run(scheduled_for=datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC))
    a_run(scheduled_for=datetime(2027, 1, 1, tzinfo=UTC))
    assert run_as(reports.monthly_csv, "2026-12")["rows"] == 1


def test_a_later_report_replaces_the_file_and_leaves_no_other(media: Path) -> None:
    a_run(scheduled_for=NOVEMBER)
    run_as(reports.monthly_csv, "2026-11")
    a_run(scheduled_for=NOVEMBER)
    assert run_as(reports.monthly_csv, "2026-11")["rows"] == 2
    assert [path.name for path in (media / "reports").iterdir()] == ["2026-11.csv"]
    assert len(lines(media / "reports" / "2026-11.csv")) == 2


def test_a_report_that_fails_leaves_the_old_file_as_it_was(media: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(scheduled_for=NOVEMBER)
    run_as(reports.monthly_csv, "2026-11")
    before = (media / "reports" / "2026-11.csv").read_bytes()
    a_run(scheduled_for=NOVEMBER)
    monkeypatch.setattr(reports, "MAX_ROWS", 1)
    with pytest.raises(GiveUp, match="more than 1 runs"):
        run_as(reports.monthly_csv, "2026-11")
    assert (media / "reports" / "2026-11.csv").read_bytes() == before
    assert [path.name for path in (media / "reports").iterdir()] == ["2026-11.csv"]


def test_an_error_that_looks_like_a_formula_is_text_in_the_sheet(media: Path) -> None:
    a_run(scheduled_for=NOVEMBER, status="dead", reason="failed", last_error='=HYPERLINK("x")\nsecond, line')
    run_as(reports.monthly_csv, "2026-11")
    assert lines(media / "reports" / "2026-11.csv")[0]["error"] == '\'=HYPERLINK("x")\nsecond, line'


@pytest.mark.parametrize("month", ["2026", "2026-13", "2026-00", "26-01", "2026-1", "0000-01", "9999-12", "../../x"])
def test_a_month_that_is_none_is_given_up(month: str) -> None:
    with pytest.raises(GiveUp, match="YYYY-MM"):
        run_as(reports.monthly_csv, month)
