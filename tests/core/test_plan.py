"""The fate of due slots: catch-up, deadlines, pauses, limits, gaps, jitter. No database, no clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

import pytest

from scheduler_app.core.limits import SHORT_GAP
from scheduler_app.core.overlap import ActiveRun
from scheduler_app.core.plan import CATCH_UP_MOST, RUNS, SCAN, Gap, JobFacts, Plan, Skip, _plan, plan
from scheduler_app.core.schedule import parse

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
_ids = count(1)


def new_id() -> UUID:
    return UUID(int=next(_ids))


def at(hour: int, minute: int = 0, second: int = 0, day: int = 30) -> datetime:
    return datetime(2026, 11, day, hour, minute, second, tzinfo=UTC)


def job(expr: str = "0 * * * *", cursor: datetime = NOON, **facts: object) -> JobFacts:
    return JobFacts(id=7, schedule=parse(expr, "UTC"), next_run_at=cursor, **facts)  # type: ignore[arg-type]


def slots(planned: Plan) -> list[datetime]:
    return [run.scheduled_for for run in planned.records]


def skipped(planned: Plan) -> dict[datetime, str]:
    return dict(planned.skips)


def follow(facts: JobFacts, now: datetime) -> list[Plan]:
    """Plan until nothing is left, as passes would: the cursor moves on and the newest range is remembered."""
    plans = []
    while True:
        planned = plan(facts, now, new_id)
        plans.append(planned)
        if not planned.more:
            return plans
        assert planned.next_run_at is not None
        gap = planned.ranges[-1] if planned.ranges else facts.gap
        facts = replace(facts, next_run_at=planned.next_run_at, gap=gap)


def test_a_due_slot_is_recorded_and_the_cursor_moves_to_the_next() -> None:
    planned = plan(job(), at(12, 0, 1), new_id)
    assert slots(planned) == [NOON]
    assert planned.records[0].run_after == NOON
    assert (planned.next_run_at, planned.more) == (at(13), False)


@pytest.mark.parametrize("expr", ["@every 7s", "*/5 * * * *", "30 2 * * *", "@at 2026-11-30T12:00:00Z"])
@pytest.mark.parametrize("age", [-1, 0, 1, 6, 7, 60, 61, 400])
def test_the_short_way_for_punctual_jobs_says_what_the_long_way_says(expr: str, age: int) -> None:
    for cursor in (NOON, at(12, 0, 3), at(2, 30)):
        facts, now = job(expr, cursor), cursor + timedelta(seconds=age)
        long = _plan(facts, now, lambda: UUID(int=1), (), RUNS, SCAN)
        assert plan(facts, now, lambda: UUID(int=1)) == long


def test_a_slot_of_exactly_now_is_due() -> None:
    assert slots(plan(job(), NOON, new_id)) == [NOON]


def test_a_cursor_that_is_no_slot_any_more_moves_to_the_first_slot_after_it() -> None:
    planned = plan(job(cursor=at(12, 30)), at(12, 31), new_id)
    assert (slots(planned), planned.next_run_at) == ([], at(13))


def test_a_failover_of_six_seconds_loses_no_slot_of_an_every_second_job() -> None:
    planned = plan(job("@every 1s"), at(12, 0, 6), new_id)
    assert slots(planned) == [at(12, 0, second) for second in range(7)]
    assert planned.skips == ()


@pytest.mark.parametrize(
    ("catch_up", "ran", "reason"),
    [
        ("latest", [at(12)], Skip.CATCH_UP),
        ("earliest", [at(9)], Skip.CATCH_UP),
        ("none", [], Skip.CATCH_UP),
        ("all", [at(9), at(10), at(11), at(12)], None),
    ],
)
def test_catch_up_decides_about_slots_older_than_the_grace(
    catch_up: str, ran: list[datetime], reason: str | None
) -> None:
    planned = plan(job(cursor=at(9), catch_up=catch_up), at(12, 30), new_id)
    assert slots(planned) == ran
    assert set(skipped(planned).values()) <= {reason}
    assert {*slots(planned), *skipped(planned)} == {at(9), at(10), at(11), at(12)}
    assert planned.next_run_at == at(13)


def test_latest_runs_no_older_slot_beside_one_that_is_merely_late() -> None:
    planned = plan(job(cursor=at(9)), at(12, 0, 10), new_id)
    assert slots(planned) == [at(12)]
    assert skipped(planned) == dict.fromkeys([at(9), at(10), at(11)], Skip.CATCH_UP)


@pytest.mark.parametrize(("age", "runs"), [(60, [NOON]), (61, [])])
def test_a_slot_of_exactly_the_grace_is_still_young(age: int, runs: list[datetime]) -> None:
    assert slots(plan(job(catch_up="none"), NOON + timedelta(seconds=age), new_id)) == runs


def test_all_runs_the_newest_up_to_the_limit_and_says_so_of_the_rest() -> None:
    planned = plan(job(cursor=at(3), catch_up="all", catch_up_limit=2), at(8, 30), new_id)
    assert slots(planned) == [at(7), at(8)]
    assert skipped(planned) == dict.fromkeys([at(3), at(4), at(5), at(6)], Skip.LIMIT)


@pytest.mark.parametrize(("age", "reason"), [(10, None), (11, Skip.DEADLINE)])
def test_a_slot_older_than_the_starting_deadline_is_skipped_though_it_is_young(age: int, reason: str | None) -> None:
    planned = plan(job(starting_deadline=10), NOON + timedelta(seconds=age), new_id)
    assert skipped(planned).get(NOON) == reason
    assert slots(planned) == ([] if reason else [NOON])


def test_the_deadline_bounds_catch_up() -> None:
    planned = plan(job(cursor=at(6), catch_up="all", starting_deadline=2 * 3600), at(12, 30), new_id)
    assert slots(planned) == [at(11), at(12)]
    assert set(skipped(planned).values()) == {Skip.DEADLINE}


def test_slots_before_the_end_of_a_pause_are_skipped_as_paused() -> None:
    planned = plan(job(cursor=at(9), catch_up="all", paused_until=at(11)), at(12, 30), new_id)
    assert skipped(planned) == dict.fromkeys([at(9), at(10)], Skip.PAUSED)
    assert slots(planned) == [at(11), at(12)]


def test_a_paused_job_skips_its_slots_as_they_come() -> None:
    planned = plan(job(paused_until=at(20)), at(12, 0, 1), new_id)
    assert (slots(planned), skipped(planned), planned.next_run_at) == ([], {NOON: Skip.PAUSED}, at(13))


def test_slots_before_start_at_do_not_exist() -> None:
    planned = plan(job(cursor=at(8), start_at=at(11), catch_up="all"), at(12, 30), new_id)
    assert (slots(planned), planned.skips) == ([at(11), at(12)], ())


def test_the_schedule_ends_with_end_at_and_a_slot_of_that_instant_still_runs() -> None:
    planned = plan(job(cursor=at(11), end_at=at(12), catch_up="all"), at(15), new_id)
    assert (slots(planned), planned.skips, planned.next_run_at, planned.more) == ([at(11), at(12)], (), None, False)


def test_max_runs_counts_runs_and_not_skips() -> None:
    planned = plan(job(cursor=at(6), remaining=2, catch_up="all", catch_up_limit=3), at(12, 30), new_id)
    assert slots(planned) == [at(10), at(11)]
    assert set(skipped(planned)) == {at(6), at(7), at(8), at(9)}
    assert (planned.next_run_at, planned.more) == (None, False)


def test_nothing_follows_the_last_of_max_runs() -> None:
    planned = plan(job(cursor=at(6), remaining=1, catch_up="earliest"), at(12, 30), new_id)
    assert (slots(planned), planned.skips, planned.next_run_at) == ([at(6)], (), None)
    assert plan(job(remaining=0), at(12, 30), new_id) == Plan()


def test_a_gap_of_a_hundred_slots_is_one_range_and_a_shorter_one_is_not() -> None:
    long = plan(job("* * * * *", catch_up="none"), NOON + timedelta(minutes=SHORT_GAP + 0.5, seconds=60), new_id)
    assert long.ranges == (Gap(NOON, NOON + timedelta(minutes=SHORT_GAP), SHORT_GAP + 1, Skip.CATCH_UP),)
    assert long.skips == ()
    short = plan(job("* * * * *", catch_up="none"), NOON + timedelta(minutes=SHORT_GAP - 0.5), new_id)
    assert (len(short.skips), short.ranges) == (SHORT_GAP - 1, ())


def test_an_every_second_job_that_was_down_for_a_year_is_one_range_in_one_call() -> None:
    now = NOON + timedelta(days=365, milliseconds=500)
    (planned,) = follow(job("@every 1s"), now)
    (gap,) = planned.ranges
    assert gap.count + len(planned.records) == 365 * 86_400 + 1
    assert slots(planned)[0] == now - timedelta(seconds=59.5)
    assert gap.last == slots(planned)[0] - timedelta(seconds=1)


@pytest.mark.parametrize("catch_up", ["latest", "none", "all", "earliest"])
def test_an_every_minute_job_that_was_down_for_a_week_is_walked_in_bounded_pieces(catch_up: str) -> None:
    now = NOON + timedelta(days=7, seconds=30)
    plans = follow(job("* * * * *", catch_up=catch_up), now)
    assert len(plans) == pytest.approx(7 * 1440 / SCAN, abs=2)
    ranges = {gap.first: gap for each in plans for gap in each.ranges}
    singles = sum(len(each.skips) for each in plans)
    ran = [slot for each in plans for slot in slots(each)]
    assert len(ranges) == 1, "pieces of one gap make one range"
    assert sum(gap.count for gap in ranges.values()) + singles + len(ran) == 7 * 1440 + 1
    newest = NOON + timedelta(days=7)
    expected = {"latest": [newest], "none": [newest], "earliest": [NOON, newest]}
    assert ran == expected.get(catch_up, [newest - timedelta(minutes=back) for back in range(100, -1, -1)])


def test_a_pass_records_a_bounded_number_of_runs_and_says_that_more_are_left() -> None:
    facts = job("@every 1s", catch_up="all", catch_up_limit=2 * RUNS)
    plans = follow(facts, NOON + timedelta(seconds=2 * RUNS + 100, milliseconds=500))
    assert [each.more for each in plans] == [True, True, False]
    assert all(len(each.records) <= RUNS for each in plans)
    ran = [slot for each in plans for slot in slots(each)]
    assert ran == sorted(set(ran))
    assert len(ran) == 2 * RUNS + 60


def test_no_catch_up_limit_makes_a_pass_unbounded() -> None:
    planned = plan(job("* * * * *", catch_up="all", catch_up_limit=10**9), NOON + timedelta(days=100), new_id)
    assert len(planned.records) == 0
    assert planned.ranges[0].count == CATCH_UP_MOST


def test_jitter_delays_the_start_and_never_the_slot() -> None:
    planned = plan(job("@every 10s", jitter=300), at(12, 0, 30), new_id)
    for run, following in zip(planned.records, planned.records[1:], strict=False):
        assert run.scheduled_for <= run.run_after < following.scheduled_for
    again = plan(job("@every 10s", jitter=300), at(12, 0, 30), new_id)
    assert [run.run_after for run in planned.records] == [run.run_after for run in again.records]
    assert len({run.run_after - run.scheduled_for for run in planned.records}) > 1


def test_jitter_stays_below_its_own_bound() -> None:
    delays = [
        plan(JobFacts(id=n, schedule=parse("0 * * * *"), next_run_at=NOON, jitter=5), NOON, new_id).records[0]
        for n in range(200)
    ]
    seconds = [(run.run_after - NOON).total_seconds() for run in delays]
    assert all(0 <= each < 5 for each in seconds)
    assert max(seconds) > 4
    assert min(seconds) < 1


def test_forbid_skips_while_a_run_is_active_and_only_then() -> None:
    facts = job(concurrency_policy="forbid")
    assert slots(plan(facts, NOON, new_id)) == [NOON]
    planned = plan(facts, NOON, new_id, [ActiveRun(new_id(), running=False)])
    assert (slots(planned), skipped(planned)) == ([], {NOON: Skip.OVERLAP})


def test_overlapping_slots_do_not_count_as_runs() -> None:
    planned = plan(job("@every 1s", concurrency_policy="forbid", remaining=3), at(12, 0, 4), new_id)
    assert (len(planned.records), len(planned.skips)) == (1, 4)
    assert planned.next_run_at == at(12, 0, 5)


def test_many_overlapping_slots_make_a_range_without_foreign_slots() -> None:
    facts = job("@every 1s", concurrency_policy="forbid", misfire_grace=3600)
    planned = plan(facts, NOON + timedelta(seconds=200), new_id, [ActiveRun(new_id(), running=True)])
    assert planned.ranges == (Gap(NOON, NOON + timedelta(seconds=200), 201, Skip.OVERLAP),)


def test_each_slot_has_one_fate_whatever_the_policies() -> None:
    now = at(18, 30)
    for catch_up in ("latest", "none", "all", "earliest"):
        for policy in ("allow", "forbid", "replace", "queue_one", "queue_all"):
            for deadline in (None, 7200):
                facts = job(
                    "*/7 * * * *",
                    at(6),
                    catch_up=catch_up,
                    catch_up_limit=20,
                    concurrency_policy=policy,
                    starting_deadline=deadline,
                    paused_until=at(8),
                )
                plans = follow(facts, now)
                singles = [slot for each in plans for slot, _ in each.skips]
                fates = singles + [slot for each in plans for slot in slots(each)]
                ranged = sum(gap.count for each in plans for gap in each.ranges)
                due = parse("*/7 * * * *").between(at(6), now, 10_000)
                assert len(fates) == len(set(fates))
                assert len(fates) + ranged == len(due), (catch_up, policy, deadline)
