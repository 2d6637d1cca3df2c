"""What text means, and how it is refused: fields, macros, H, intervals, instants."""

import pickle
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from scheduler_app.core.errors import EveryslotError
from scheduler_app.core.schedule import InvalidSchedule, next_fires, parse, validate

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def slots(expression: str, zone: str = "UTC", after: datetime = NEW_YEAR, k: int = 3, **options: str) -> str:
    return " ".join(f"{slot:%m-%dT%H:%M}" for slot in next_fires(expression, zone, after, k, **options))  # type: ignore[arg-type]


REFUSED = {
    "seconds": ("0 0 9 * * *", "schedule", "seconds and years"),
    "a zone behind the fields": ("0 9 * * * Europe/Berlin", "schedule", "time zone"),
    "a zone before the fields": ("CRON_TZ=Europe/Berlin 0 9 * * *", "schedule", "time zone"),
    "four fields": ("0 9 * *", "schedule", "not 4"),
    "a lone word": ("daily", "schedule", "not 1"),
    "reboot": ("@reboot", "schedule", "names no time"),
    "an unknown macro": ("@sometimes", "schedule", "@daily"),
    "a macro with a tail": ("@daily UTC", "schedule", "@daily"),
    "a recurrence rule": ("RRULE:FREQ=DAILY", "schedule", "RRULE"),
    "a question mark for minutes": ("? * * * *", "minute", "not one of 0 to 59"),
    "a bad hour": ("0 24 * * *", "hour", "outside 0 to 23"),
    "a bad month": ("0 0 1 foo *", "month", "JAN|FEB"),
    "a bad weekday": ("0 0 * * noday", "day of week", "SUN|MON"),
    "a backward range": ("0 22-4 * * *", "hour", "backwards"),
    "a backward range of names": ("0 0 * * fri-sun", "day of week", "backwards"),
    "the last day of the week alone": ("0 0 * * L", "day of week", "weekday is missing"),
    "the nearest weekday": ("0 0 15W * *", "day of month", "only L"),
    "days before the last": ("0 0 L-3 * *", "day of month", "only L"),
    "a long letter": ("0 0 * * \N{LATIN SMALL LETTER LONG S}un", "day of week", "not one of"),
    "Arabic digits": ("\N{ARABIC-INDIC DIGIT ONE} * * * *", "minute", "not one of"),
    "a no-break space": ("0 0\N{NO-BREAK SPACE}* * *", "schedule", "invisible"),
    "two lines": ("0 0 * * *\n0 1 * * *", "schedule", "one line"),
    "a spread beyond the field": ("H(0-60) * * * *", "minute", "outside 0 to 59"),
    "a spread that runs backwards": ("H(9-5) * * * *", "minute", "backwards"),
    "a spread that is something else": ("HX * * * *", "minute", "not H"),
    "no interval": ("@every", "schedule", "90s"),
    "an interval of nothing": ("@every 0s", "schedule", "one second"),
    "an interval of part of a second": ("@every 1.5s", "schedule", "90s"),
    "an interval of milliseconds": ("@every 15ms", "schedule", "90s"),
    "an interval with a phase": ("@every 5h/45m", "schedule", "90s"),
    "an interval in another order": ("@every 30m1h", "schedule", "90s"),
    "an interval of centuries": ("@every 36526d", "schedule", "hundred years"),
    "no instant": ("@at", "schedule", "2026-12-01"),
    "a date alone": ("@at 2026-12-01", "schedule", "2026-12-01"),
    "a day that does not exist": ("@at 2026-02-30T09:00", "schedule", "does not exist"),
    "an instant that is none in other zones": ("@at 9999-12-31T23:59:59Z", "schedule", "years 1 to 9998"),
    "an instant before the calendar": ("@at 0001-01-01T00:00+05:00", "schedule", "years 1 to 9998"),
}  # fmt: skip


@pytest.mark.parametrize(("expression", "field", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_text_is_refused_by_its_field_with_the_reason(expression, field, reason):
    with pytest.raises(InvalidSchedule) as refused:
        validate(expression, "UTC")
    assert refused.value.field == field
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    ("option", "value"),
    [("gap", "jump"), ("fold", "second"), ("anchor", datetime(2026, 1, 1))],  # noqa: DTZ001
)
def test_a_bad_option_is_refused_by_its_name(option, value):
    with pytest.raises(InvalidSchedule) as refused:
        parse("0 0 * * *", **{option: value})
    assert refused.value.field == option


def test_the_error_has_a_code_that_stays_and_survives_a_process_boundary():
    error = InvalidSchedule("minute", "is wrong")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(error, EveryslotError)
    assert (copy.code, copy.field, copy.reason, str(copy)) == (
        "invalid_schedule",
        "minute",
        "is wrong",
        "minute: is wrong",
    )


@pytest.mark.parametrize("text", ["  0 9 * * 1-5 ", "0\t9\t*\t*\t1-5", "0  9  *  *  mon-FRI", "00 09 ? * 1,2,3,4,5\n"])
def test_blanks_case_and_question_marks_do_not_change_the_meaning(text):
    assert slots(text) == slots("0 9 * * 1-5")


def test_equal_arguments_give_the_same_immutable_value():
    schedule = parse("0 9 * * *", "Europe/Berlin")
    assert parse("0 9 * * *", "Europe/Berlin", gap="shift", fold="first") is schedule
    assert schedule.kind == "cron"
    with pytest.raises(AttributeError):
        schedule.hours = 0  # type: ignore[attr-defined]


def test_a_spread_is_the_same_for_ever_and_differs_between_jobs():
    assert slots("H H * * *", key="report") == slots("H H * * *", key="report")
    minutes = {slots("H * * * *", key=f"job {n}", k=1) for n in range(500)}
    assert len(minutes) == 60
    # These values are promised: a change of the hash would move every job that uses H.
    assert slots("H H * * *", key="report", k=1) == "01-01T03:35"
    assert slots("H H H H *", key="report", k=1) == "11-15T03:35"


def test_a_spread_with_a_step_keeps_the_step_and_a_range_keeps_the_range():
    for n in range(200):
        fires = next_fires("H/15 * * * *", "UTC", NEW_YEAR, 5, key=f"job {n}")
        assert {later - earlier for earlier, later in pairwise(fires)} == {timedelta(minutes=15)}
        (fire,) = next_fires("H(10-20) H(1-3) * * *", "UTC", NEW_YEAR, 1, key=f"job {n}")
        assert 10 <= fire.minute <= 20
        assert 1 <= fire.hour <= 3
        assert len(next_fires("0 0 H * *", "UTC", NEW_YEAR, 12, key=f"job {n}")) == 12
        assert len({fire.month for fire in next_fires("0 0 H * *", "UTC", NEW_YEAR, 12, key=f"job {n}")}) == 12
        assert next_fires("0 0 H/40 * *", "UTC", NEW_YEAR, 1, key=f"job {n}")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("2d", 172_800), ("1w", 604_800), ("1w1d1h1m1s", 694_861), ("5H", 18_000)],
)
def test_an_interval_is_the_sum_of_its_parts(text, seconds):
    anchor = datetime(2026, 3, 3, 3, 3, 3, 333, tzinfo=UTC)
    schedule = parse(f"@every {text}", "Europe/Berlin", anchor=anchor)
    assert schedule.kind == "interval"
    assert schedule.next(anchor) == anchor + timedelta(seconds=seconds)


def test_an_interval_does_not_drift_and_reaches_both_ways_from_its_anchor():
    anchor = datetime(2020, 5, 16, 17, 32, 44, 649521, tzinfo=UTC)
    schedule = parse("@every 3606s", anchor=anchor)
    assert schedule.next(anchor - timedelta(microseconds=1)) == anchor
    assert schedule.next(anchor) == datetime(2020, 5, 16, 18, 32, 50, 649521, tzinfo=UTC)
    assert schedule.next(anchor + timedelta(seconds=3606 * 10**6)) == anchor + timedelta(seconds=3606 * (10**6 + 1))
    assert schedule.next(anchor - timedelta(seconds=3606 * 5 - 1)) == anchor - timedelta(seconds=3606 * 4)


def test_an_interval_without_an_anchor_counts_from_the_unix_epoch():
    after = datetime(2022, 3, 23, 12, 53, 2, tzinfo=UTC)
    assert next_fires("@every 90m", "UTC", after, 2) == [
        datetime(2022, 3, 23, 13, 30, tzinfo=UTC),
        datetime(2022, 3, 23, 15, 0, tzinfo=UTC),
    ]


def test_an_instant_with_an_offset_comes_once_wherever_the_job_lives():
    schedule = parse("@at 2026-12-01T09:00:00+01:00", "Asia/Tokyo")
    at = datetime(2026, 12, 1, 8, tzinfo=UTC)
    assert schedule.kind == "once"
    assert schedule.next(NEW_YEAR) == at
    assert schedule.next(at) is None
    assert slots("@at 2026-12-01t08:00z") == slots("@at 2026-12-01 09:00:00.000+01:00") == "12-01T08:00"


AT_A_CHANGE = {
    "winter": ("2026-12-01T09:00", {}, "12-01T08:00"),
    "the gap": ("2026-03-29T02:30:15", {}, "03-29T01:00"),
    "the repeated hour": ("2026-10-25T02:30", {}, "10-25T00:30"),
    "the repeated hour, last": ("2026-10-25T02:30", {"fold": "last"}, "10-25T01:30"),
    "the repeated hour, both": ("2026-10-25T02:30", {"fold": "both"}, "10-25T00:30 10-25T01:30"),
}


@pytest.mark.parametrize(("local", "options", "right"), AT_A_CHANGE.values(), ids=AT_A_CHANGE.keys())
def test_an_instant_without_an_offset_is_a_local_time_of_the_zone(local, options, right):
    assert slots(f"@at {local}", "Europe/Berlin", **options) == right


@pytest.mark.parametrize(
    ("local", "zone", "gap"),
    [("2011-12-30T12:00", "Pacific/Apia", "shift"), ("2026-03-29T02:30", "Europe/Berlin", "skip")],
)
def test_an_instant_that_the_clocks_jump_over_for_good_is_refused(local, zone, gap):
    with pytest.raises(InvalidSchedule, match="never comes"):
        parse(f"@at {local}", zone, gap=gap)


POLICIES = {
    "gap shift": ("30 2 * * *", "2026-03-28T12:00", {"gap": "shift"}, "03-29T01:00 03-30T00:30"),
    "gap skip": ("30 2 * * *", "2026-03-28T12:00", {"gap": "skip"}, "03-30T00:30 03-31T00:30"),
    "fold first": ("30 2 * * *", "2026-10-24T12:00", {"fold": "first"}, "10-25T00:30 10-26T01:30"),
    "fold last": ("30 2 * * *", "2026-10-24T12:00", {"fold": "last"}, "10-25T01:30 10-26T01:30"),
    "fold both": ("30 2 * * *", "2026-10-24T12:00", {"fold": "both"}, "10-25T00:30 10-25T01:30"),
    "several in a gap": ("0,20,40 2,3 * * *", "2026-03-29T00:30", {}, "03-29T01:00 03-29T01:20"),
    "real time ignores gap": ("*/30 2 * * *", "2026-03-28T12:00", {"gap": "shift"}, "03-30T00:00 03-30T00:30"),
    "real time ignores fold": ("*/30 2 * * *", "2026-10-25T00:00", {"fold": "first"}, "10-25T00:30 10-25T01:00"),
}


@pytest.mark.parametrize(("text", "after", "options", "right"), POLICIES.values(), ids=POLICIES.keys())
def test_gap_and_fold_move_fixed_times_only(text, after, options, right):
    assert slots(text, "Europe/Berlin", datetime.fromisoformat(after).replace(tzinfo=UTC), 2, **options) == right


@pytest.mark.parametrize("fold", ["first", "last", "both"])
def test_a_jump_of_three_hours_is_a_correction_and_moves_nothing(fold):
    # Casey went from +11 to +08 on 2010-03-05 at 02:00: the time from 23:00 on was lived twice.
    after = datetime(2010, 3, 4, 11, tzinfo=UTC)
    assert slots("30 23 * * *", "Antarctica/Casey", after, 2, fold=fold) == "03-04T12:30 03-04T15:30"
    # And from +08 to +11 on 2009-10-18 at 02:00: what lay between is not made up.
    after = datetime(2009, 10, 17, 12, tzinfo=UTC)
    assert slots("30 3 * * *", "Antarctica/Casey", after, 1) == "10-18T16:30"


def test_asking_for_no_slots_gives_none():
    assert next_fires("* * * * *", "UTC", NEW_YEAR, 0) == []
