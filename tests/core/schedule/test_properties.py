"""What holds for any expression, zone and instant: order, independence of the path, and bounded work.

Work is counted in calls, so that a loaded machine cannot change the verdict.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import available_timezones

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler_app.core.schedule import InvalidSchedule, Schedule, explain, next_fires, parse, validate
from tests.core.schedule.strategies import EXPRESSIONS, ZONES
from tests.core.schedule.test_oracle import examples, parsed

ALL_ZONES = st.sampled_from(sorted(available_timezones() - {"Factory", "localtime"}))
INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(2100, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
MOST_CALLS = 12_000
"""Calls of Python and built-in functions that one answer may take: about three milliseconds."""


def schedules() -> st.SearchStrategy[Schedule | None]:
    return st.builds(
        lambda expression, zone, gap, fold: parsed(expression, zone, gap=gap, fold=fold),
        EXPRESSIONS,
        st.sampled_from(ZONES) | ALL_ZONES,
        st.sampled_from(("shift", "skip")),
        st.sampled_from(("first", "last", "both")),
    )


@examples(200)
@given(schedules(), INSTANTS)
def test_slots_strictly_increase_and_come_strictly_after(schedule, after):
    assume(schedule is not None)
    previous = after
    for _ in range(20):
        slot = schedule.next(previous)
        if slot is None:
            break
        assert slot > previous
        assert slot.tzinfo is UTC
        previous = slot


@examples(200)
@given(schedules(), INSTANTS, st.floats(0, 1))
def test_the_next_slot_depends_on_the_instant_alone_and_not_on_the_way_there(schedule, after, part):
    assume(schedule is not None)
    slot = schedule.next(after)
    assume(slot is not None)
    between = after + (slot - after) * part
    assert schedule.next(between) == (slot if between < slot else schedule.next(slot))
    assert schedule.next(slot - timedelta(microseconds=1)) == slot
    assert schedule.next(after.astimezone()) == slot


@examples(200)
@given(schedules(), INSTANTS)
def test_between_lists_what_next_would_give_with_both_ends_included(schedule, start):
    assume(schedule is not None)
    first = schedule.next(start)
    assume(first is not None)
    second = schedule.next(first)
    assume(second is not None)
    assert schedule.between(first, second, 10) == [first, second]
    assert schedule.between(first, second, 1) == [first]
    assert schedule.between(first, second - timedelta(microseconds=1), 10) == [first]
    assert schedule.between(second, first, 10) == []


@examples(300)
@given(st.text() | st.text(alphabet="0123456789*/,-?LWH#()@ JANMOevrydhms\t", max_size=40))
def test_any_text_is_accepted_and_answers_or_is_refused_with_a_field_and_a_short_reason(text):
    refused = refusal(text, "Europe/Berlin")
    if refused is None:
        next_fires(text, "Europe/Berlin", datetime(2026, 1, 1, tzinfo=UTC), 3)
        assert explain(text, "Europe/Berlin").endswith(".")
    else:
        assert refused.field
        assert len(str(refused)) < 300


def refusal(text: str, zone: str) -> InvalidSchedule | None:
    """Why the text is refused, or None."""
    try:
        validate(text, zone)
    except InvalidSchedule as refused:
        return refused
    return None


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called until `work` returns or refuses."""
    count = 0

    def counted(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        with suppress(InvalidSchedule):
            work()
    finally:
        sys.setprofile(None)
    return count


HOSTILE_TEXT = {
    "64 KB of stars": "*" * 65_536,
    "64 KB of commas": ",".join("1" * 32_768),
    "64 KB of fields": "* " * 32_768,
    "64 KB of digits": "9" * 65_536 + " * * * *",
    "64 KB of blanks": " " * 65_536,
    "the longest text": ",".join(["*/1"] * 253) + " * * * *",
    "the longest list of spreads": ",".join(["H"] * 500) + " * * * *",
    "the longest list of ordinals": "0 0 * * " + ",".join(["1#5"] * 250),
    "the longest interval": "@every " + "9" * 1000 + "s",
    "a huge step": "*/9999 * * * *",
    "a huge number": "1" * 999 + " * * * *",
    "an impossible date": "0 0 30 2 *",
    "an impossible list": "0 0 31 2,4,6,9,11 *",
    "an impossible pair": "0 0 */30 2 1#5",
}


@pytest.mark.parametrize("text", HOSTILE_TEXT.values(), ids=HOSTILE_TEXT.keys())
def test_hostile_text_is_answered_within_bounded_work(text):
    assert calls_of(lambda: next_fires(text, "Europe/Berlin", datetime(2026, 1, 1, tzinfo=UTC), 1)) < MOST_CALLS


RARE = {
    "29 February": ("0 0 29 2 *", "UTC"),
    "29 February or the fifth Monday of February": ("0 0 29 2 1#5", "Europe/Berlin"),
    "29 February if it is a Sunday": ("0 0 */28 2 0#5", "Europe/Berlin"),
    "a time that the clocks always jump over": ("* 2 * 3 0L", "Europe/Berlin"),
    "a time that the clocks jump over and that is not made up": ("30 2 * 3 0L", "Europe/Berlin"),
    "every second": ("@every 1s", "UTC"),
    "a century": ("@every 36525d", "UTC"),
}
MOMENTS = ("0001-01-01T00:00+00:00", "1970-01-01T00:00+00:00", "2096-03-01T00:00+00:00", "9999-12-31T23:59:59+00:00",
           "0001-01-01T00:00+14:00", "9999-12-31T23:59:59-12:00")  # fmt: skip


@pytest.mark.parametrize("after", MOMENTS)
@pytest.mark.parametrize(("text", "zone"), RARE.values(), ids=RARE.keys())
def test_rare_schedules_answer_within_bounded_work_from_any_year(text, zone, after):
    anchor = datetime(9999, 1, 1, 0, 0, 0, 7, tzinfo=UTC)
    schedule = parse(text, zone, gap="skip", anchor=anchor)
    moment = datetime.fromisoformat(after)
    assert calls_of(lambda: schedule.next(moment)) < MOST_CALLS


def test_the_rarest_date_is_found_forty_years_ahead():
    # 29 February is a Sunday in 2088 and, as 2100 has no such day, again in 2128.
    found = next_fires("0 0 */28 2 0#5", "UTC", datetime(2088, 3, 1, tzinfo=UTC), 1)
    assert found == [datetime(2128, 2, 29, tzinfo=UTC)]


def test_a_time_that_the_clocks_always_jump_over_never_comes_for_a_job_that_follows_real_time():
    assert parse("* 2 * 3 0L", "Europe/Berlin").next(datetime(2026, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Europe/Berlin"])
def test_the_ends_of_the_calendar_are_reached_without_an_error(zone):
    schedule = parse("* * * * *", zone)
    first = schedule.next(datetime.min.replace(tzinfo=UTC))
    assert first is not None
    assert first - datetime.min.replace(tzinfo=UTC) <= timedelta(days=1)
    assert schedule.next(datetime.max.replace(tzinfo=UTC)) is None
    last = schedule.next(datetime(9999, 12, 30, 12, tzinfo=UTC))
    assert last is not None
