"""The engine against a slow oracle that walks every minute around the changes of many zones' clocks."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler_app.core.schedule import InvalidSchedule, Schedule, parse
from tests.core.schedule.oracle import Expression, changes_in, fires, minutes_of
from tests.core.schedule.strategies import EXPRESSIONS, FREQUENT, ZONES

AROUND = timedelta(hours=28)


def examples(count: int) -> settings:
    """Settings for `count` examples, the same on every run and without a clock."""
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def parsed(expression: Expression, zone: str, **policy: str) -> Schedule | None:
    """The schedule, or None when no date of the calendar can match it."""
    try:
        return parse(expression.text, zone, **policy)  # type: ignore[arg-type]
    except InvalidSchedule as refused:
        if "never run" not in refused.reason:
            raise
        return None


@st.composite
def windows(draw: st.DrawFn, zones: st.SearchStrategy[str]) -> tuple[str, datetime, datetime]:
    """A zone and a span of 56 hours, around a change of its clocks if the year has one."""
    name = draw(zones)
    # Liberia's offset was not a whole minute until 1972, which a walk over minutes cannot see.
    year = draw(st.integers(1973 if name == "Africa/Monrovia" else 1970, 2099))
    changes = changes_in(ZoneInfo(name), year)
    at = draw(st.sampled_from(changes)) if changes else datetime(year, 2, 28, 12, tzinfo=UTC)
    return name, at - AROUND, at + AROUND


def check(expression: Expression, window: tuple[str, datetime, datetime], hours: float, **policy: str) -> None:
    name, start, end = window
    schedule = parsed(expression, name, **policy)
    after = start + timedelta(hours=hours)
    expected = [slot for slot in fires(expression, minutes_of(ZoneInfo(name), start, end), **policy) if slot > after]
    if schedule is None:
        assert expected == []
        return
    found = schedule.between(after + timedelta(microseconds=1), end - timedelta(microseconds=1), 10_000)
    assert found == expected, (expression.text, name, after)


@examples(80)
@given(FREQUENT, windows(st.sampled_from(ZONES)), st.floats(0, 50))
def test_slots_around_a_clock_change_are_those_of_the_minute_walk(expression, window, hours):
    check(expression, window, hours)


@examples(50)
@given(
    FREQUENT,
    windows(st.sampled_from(ZONES)),
    st.floats(0, 50),
    st.sampled_from(("shift", "skip")),
    st.sampled_from(("first", "last", "both")),
)
def test_gap_and_fold_policies_give_the_slots_of_the_minute_walk(expression, window, hours, gap, fold):
    check(expression, window, hours, gap=gap, fold=fold)


@examples(50)
@given(
    EXPRESSIONS, windows(st.sampled_from(sorted(available_timezones() - {"Factory", "localtime"}))), st.floats(0, 50)
)
def test_any_expression_in_any_zone_gives_the_slots_of_the_minute_walk(expression, window, hours):
    check(expression, window, hours)


# Year and month in UTC.
NAMED = (
    ("Lord Howe springs by 30 minutes", "Australia/Lord_Howe", 2023, 9),
    ("Lord Howe falls by 30 minutes", "Australia/Lord_Howe", 2024, 4),
    ("Samoa skips a whole day", "Pacific/Apia", 2011, 12),
    ("Kiribati skips a whole day", "Pacific/Kiritimati", 1994, 12),
    ("Troll springs by two hours", "Antarctica/Troll", 2024, 3),
    ("Troll falls by two hours", "Antarctica/Troll", 2024, 10),
    ("Casey goes back by three hours", "Antarctica/Casey", 2010, 3),
    ("Casey goes forward by three hours", "Antarctica/Casey", 2009, 10),
    ("Dublin's winter is the saving time", "Europe/Dublin", 2024, 10),
    ("Casablanca leaves its summer time for Ramadan", "Africa/Casablanca", 2024, 3),
    ("Casablanca comes back after Ramadan", "Africa/Casablanca", 2024, 4),
    ("St John's fell at one minute past midnight", "America/St_Johns", 2010, 11),
    ("Toronto fell at one minute past midnight", "America/Toronto", 1999, 10),
    ("Cairo falls from midnight into the day before", "Africa/Cairo", 2023, 10),
    ("Sao Paulo springs at midnight", "America/Sao_Paulo", 2018, 11),
    ("Scoresbysund falls from midnight into the day before", "America/Scoresbysund", 2023, 10),
    ("Kathmandu moved by a quarter of an hour", "Asia/Kathmandu", 1985, 12),
    ("Pyongyang went back half an hour", "Asia/Pyongyang", 2015, 8),
    ("Kwajalein crossed the date line", "Pacific/Kwajalein", 1993, 8),
    ("Chatham springs at a quarter to three", "Pacific/Chatham", 2024, 9),
)


@pytest.mark.parametrize(("zone", "year", "month"), [case[1:] for case in NAMED], ids=[case[0] for case in NAMED])
@examples(8)
@given(FREQUENT, st.floats(0, 50))
def test_famous_clock_changes_give_the_slots_of_the_minute_walk(zone, year, month, expression, hours):
    at = next(change for change in changes_in(ZoneInfo(zone), year) if change.month == month)
    check(expression, (zone, at - AROUND, at + AROUND), hours)


def test_several_minutes_over_midnight_keep_their_order_when_the_clocks_go_back_across_it():
    # St John's, 2010-11-07 00:01 went back to 23:01 of the day before: 00:00 came before the second 23:01.
    schedule = parse("*/30 * * * *", "America/St_Johns")
    found = schedule.between(datetime(2010, 11, 7, 2, tzinfo=UTC), datetime(2010, 11, 7, 4, tzinfo=UTC), 9)
    assert [f"{slot:%H:%M}" for slot in found] == ["02:00", "02:30", "03:00", "03:30", "04:00"]


def test_a_gap_that_ends_within_a_minute_is_made_up_at_the_next_whole_minute():
    # Monrovia, 1972-01-07: from -00:44:30 to UTC, local 00:00:00 became 00:44:30.
    found = parse("10,44,45 0 * * *", "Africa/Monrovia").between(
        datetime(1972, 1, 6, 12, tzinfo=UTC), datetime(1972, 1, 8, 0, 20, tzinfo=UTC), 9
    )
    assert [f"{slot:%d %H:%M:%S}" for slot in found] == ["07 00:45:00", "08 00:10:00"]


def test_slots_of_a_zone_with_odd_seconds_fall_on_its_own_whole_minutes():
    assert parse("0 12 * * *", "Africa/Monrovia").next(datetime(1971, 5, 1, tzinfo=UTC)) == datetime(
        1971, 5, 1, 12, 44, 30, tzinfo=UTC
    )
