"""Public bug reports of other schedulers about time, each with the instants that are right.

The number and the source name the report. Instants are UTC; a right answer is what Debian's rule gives.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from scheduler_app.core.schedule import InvalidSchedule, next_fires, parse, validate


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


FILE = Path(__file__).parents[2] / "data" / "reported_slots.txt"
REPORTED = [line.split(" | ") for line in FILE.read_text(encoding="utf-8").splitlines() if line[0] != "#"]


@pytest.mark.parametrize(
    ("expression", "zone", "after", "right"),
    [pytest.param(*row[2:], id=f"report {row[0]}: {row[1]}: {row[2]} {row[4]}") for row in REPORTED],
)
def test_a_reported_schedule_gets_its_right_slots(expression, zone, after, right):
    wanted = [utc(slot) for slot in right.split()]
    assert next_fires(expression, zone, utc(after), len(wanted)) == wanted


def test_report_7_planning_every_minute_over_a_clock_change_always_answers_one_of_three_slots():
    right = [utc("2023-03-12T08:20"), utc("2023-03-12T11:20"), utc("2023-03-12T15:20")]
    schedule = parse("20 */4 * * *", "America/Los_Angeles")
    for minute in range(5 * 60):
        now = utc("2023-03-12T07:00") + timedelta(minutes=minute)
        assert schedule.next(now) == next(slot for slot in right if slot > now)


def test_report_24_an_interval_stays_60_seconds_apart_through_the_repeated_hour_and_both_passes_are_known():
    anchor = datetime(2019, 11, 3, 5, 0, 7, tzinfo=UTC)  # 01:00:07 in New York, first pass
    slots = next_fires("@every 60s", "America/New_York", anchor, 180, anchor=anchor)
    assert slots == [anchor + timedelta(seconds=60 * n) for n in range(1, 181)]
    for stored in ("2022-11-06T01:18:52-07:00", "2022-11-06T01:18:52-08:00"):
        after = datetime.fromisoformat(stored)
        assert next_fires("18 * * * *", "America/Los_Angeles", after, 1)[0] > after


def test_report_32_a_job_of_every_minute_runs_1500_times_in_the_long_day():
    day = parse("* * * * *", "Europe/London").between(utc("2025-10-25T23:00"), utc("2025-10-26T23:59"), 2000)
    assert len(day) == 1440 + 60
    assert {later - earlier for earlier, later in pairwise(day)} == {timedelta(minutes=1)}


def test_report_34_planning_again_after_the_clocks_changed_gives_the_same_slots():
    week = next_fires("5 0 * * *", "Europe/London", utc("2022-10-27T12:00"), 7)
    again = next_fires("5 0 * * *", "Europe/London", utc("2022-10-30T12:00"), 7)
    assert set(week) & set(again) == {slot for slot in week if slot > utc("2022-10-30T12:00")}


def test_report_38_intervals_never_use_local_time():
    anchor = utc("2026-10-25T00:00")
    slots = next_fires("@every 10m", "Europe/Berlin", anchor, 30, anchor=anchor)
    assert slots == [anchor + timedelta(minutes=10 * n) for n in range(1, 31)]


@pytest.mark.parametrize("zone", ["Europe/Kiev", "US/Pacific", "EST", "UTC", "Etc/GMT+5"])
def test_report_42_iana_names_and_their_aliases_are_accepted(zone):
    validate("0 9 * * *", zone)


@pytest.mark.parametrize(
    "zone",
    ["", " ", "Etc/Unknown", "+02:00", "europe/paris", "Europe", "../etc/passwd", "/etc/localtime", "Factory", "UTC\0",
     "posix/UTC", "right/UTC", "zone.tab", "Europe/Berlin ", "Europe//Berlin", "E" * 70_000, "\ud800"],
)  # fmt: skip
def test_report_42_anything_else_is_refused_as_a_time_zone(zone):
    with pytest.raises(InvalidSchedule) as refused:
        validate("0 9 * * *", zone)
    assert refused.value.field == "timezone"
    assert len(str(refused.value)) < 200


def test_report_44_a_datetime_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="time zone"):
        next_fires("0 9 * * *", "America/New_York", datetime(2026, 1, 1), 1)  # noqa: DTZ001


@pytest.mark.parametrize("sunday", ["0", "7", "SUN", "sun"])
def test_report_52_all_spellings_of_sunday_are_the_same(sunday):
    after = utc("2026-12-01T00:00")
    assert next_fires(f"0 9 * * {sunday}", "UTC", after, 5) == next_fires("0 9 * * 7", "UTC", after, 5)


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6 *"])
def test_report_54_an_impossible_date_is_refused_by_its_field(expression):
    with pytest.raises(InvalidSchedule, match="never run") as refused:
        validate(expression, "UTC")
    assert refused.value.field == "day of month"


@pytest.mark.parametrize(
    ("expression", "field"),
    [("*/0 * * * *", "minute"), ("1-5/0 * * * *", "minute"), ("5-1 * * * *", "minute"), ("60 * * * *", "minute"),
     ("0 0 0 * *", "day of month"), ("", "schedule"), ("1" * 10_240, "schedule"),
     ("\N{SUPERSCRIPT TWO} * * * *", "minute"),     ("0 0\n* * *", "schedule")],
)  # fmt: skip
def test_report_56_bad_text_is_refused_by_its_field(expression, field):
    with pytest.raises(InvalidSchedule) as refused:
        validate(expression, "UTC")
    assert refused.value.field == field


@pytest.mark.parametrize("hour", range(24))
@pytest.mark.parametrize(
    "zone",
    ["UTC", "Asia/Kolkata", "Australia/Melbourne", "America/St_Johns", "Pacific/Apia", "Europe/Berlin"],
)
def test_report_103_a_daily_job_at_any_hour_in_any_zone_runs_twice_in_48_hours(zone, hour):
    start = utc("2026-06-10T17:00")
    assert len(parse(f"0 {hour} * * *", zone).between(start, start + timedelta(hours=47, minutes=59), 99)) == 2


def test_report_193_every_minute_with_a_step_of_one_is_every_minute():
    after = utc("2026-06-10T17:00")
    assert next_fires("*/1 * * * *", "UTC", after, 600) == next_fires("* * * * *", "UTC", after, 600)
