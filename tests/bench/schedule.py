"""Microseconds to parse common expressions and to find their next slot, with no cache of parsed text.

Run it as `python -m tests.bench.schedule`. The instants move on by 7 hours and 1 second a time, so that days near
clock changes are met too; what is known of a zone's offsets stays cached, as it does in a running beat.
"""

import sys
from datetime import UTC, datetime, timedelta
from statistics import mean, median
from time import perf_counter

from scheduler_app.core.schedule import parse
from scheduler_app.core.schedule.parsing import _parse
from scheduler_app.core.schedule.zones import Changes

COMMON = (
    ("* * * * *", "UTC"),
    ("*/5 * * * *", "UTC"),
    ("0 * * * *", "America/New_York"),
    ("0 2 * * *", "America/New_York"),
    ("30 4 * * *", "Asia/Kolkata"),
    ("0 9 * * 1-5", "Europe/Berlin"),
    ("0,15,30,45 8-18/2 * * mon,wed,fri", "Europe/London"),
    ("30 4 1,15 * 5", "Europe/Berlin"),
    ("0 0 L * *", "UTC"),
    ("0 9 * * MON#1", "Europe/London"),
    ("0 0 1 1 *", "UTC"),
    ("0 0 29 2 *", "UTC"),
    ("H H * * *", "UTC"),
    ("@daily", "Asia/Tokyo"),
    ("@every 90s", "UTC"),
    ("@at 2026-12-01T09:00:00+01:00", "UTC"),
)
MOMENTS = 1000
ROUNDS = 5
START = datetime(2026, 5, 5, 10, 7, 33, tzinfo=UTC)
STEP = timedelta(hours=7, seconds=1)


def microseconds(text: str, zone: str) -> tuple[float, float]:
    """Microseconds of an uncached parse plus the next slot, and of the next slot alone: means of the best round."""
    changes = Changes("shift", "first")
    kept = parse(text, zone)
    moments = [START + STEP * n for n in range(MOMENTS)]
    both, alone = [], []
    for _ in range(ROUNDS):
        began = perf_counter()
        for moment in moments:
            _parse.__wrapped__(text, zone, "job", 0, changes).next(moment)
        middle = perf_counter()
        for moment in moments:
            kept.next(moment)
        both.append((middle - began) / MOMENTS * 1e6)
        alone.append((perf_counter() - middle) / MOMENTS * 1e6)
    return min(both), min(alone)


def main(_: list[str]) -> None:
    print(f"{'expression':36} {'zone':18} {'parse+next':>10} {'next':>7}   µs")
    totals = []
    for text, zone in COMMON:
        both, alone = microseconds(text, zone)
        totals.append(both)
        print(f"{text:36} {zone:18} {both:10.1f} {alone:7.1f}")
    print(
        f"mean {mean(totals):.1f} µs, median {median(totals):.1f} µs, most {max(totals):.1f} µs (target: 50 on average)"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
