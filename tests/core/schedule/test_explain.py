"""Schedules in plain English."""

import pytest

from scheduler_app.core.schedule import InvalidSchedule, explain

SAID = {
    "* * * * *": "Every minute, UTC.",
    "*/5 * * * *": "Every 5 minutes, UTC.",
    "* * * 1 *": "Every minute, every day in January, UTC.",
    "30 * * * *": "At minute 30 of every hour, UTC.",
    "*/40 * * * *": "At minute 0 and 40 of every hour, UTC.",
    "0 9 * * *": "At 09:00, every day, UTC.",
    "0 */6 * * *": "At 00:00, 06:00, 12:00 and 18:00, every day, UTC.",
    "*/15 */2 * * *": "Every 15 minutes of every 2 hours from midnight on, UTC.",
    "*/5 9-17 * * 1-5": "Every 5 minutes from 09:00 to 17:59, on Monday to Friday, UTC.",
    "5,35 1-5,9 * * *": "At minute 5 and 35 of hour 1 to 5 and 9, UTC.",
    "0 0 1,3,10-20 * *": "At 00:00, on day 1, 3 and 10 to 20 of the month, UTC.",
    "0 0 15 jan-mar,jul *": "At 00:00, on day 15 of the month in January to March and July, UTC.",
    "0 9 L,15 * *": "At 09:00, on day 15 and the last day of the month, UTC.",
    "0 9 LW * *": "At 09:00, on the last weekday (Monday to Friday) of the month, UTC.",
    "0 9 * * 5L,1#2": "At 09:00, on the last Friday of the month and the second Monday of the month, UTC.",
    "@weekly": "At 00:00, on Sunday, UTC.",
    "@every 1h30m": "Every 1 hour 30 minutes, counted from 1970-01-01 00:00:00 UTC.",
    "@at 2026-12-01T09:00+01:00": "Once, at 2026-12-01 08:00:00 UTC.",
}


@pytest.mark.parametrize(("text", "said"), SAID.items(), ids=SAID.keys())
def test_a_schedule_is_said_in_plain_english(text, said):
    assert explain(text) == said


def test_two_plain_day_fields_are_either_or():
    assert explain("0 0 13 * 5") == "At 00:00, on day 13 of the month and also on Friday, UTC."


def test_a_day_field_that_starts_with_a_star_narrows_the_other():
    assert explain("0 0 */15 * 1") == "At 00:00, on day 1, 16 and 31 of the month, but only on Monday, UTC."
    assert explain("0 0 1-7 * */7") == "At 00:00, on day 1 to 7 of the month, but only on Sunday, UTC."


def test_either_or_with_all_days_is_every_day():
    assert explain("0 0 1-31 * 1") == "At 00:00, every day, UTC."


def test_the_zone_is_named_and_a_spread_shows_the_times_of_the_job():
    assert explain("H H * * *", "Europe/Berlin", key="report") == "At 03:35, every day, Europe/Berlin time."


def test_what_cannot_run_is_refused():
    with pytest.raises(InvalidSchedule, match="minute"):
        explain("60 * * * *")
