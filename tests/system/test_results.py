"""How runs are answered, and how every way out of a task ends its run.

Starting a worker takes seconds, so one worker a broker works on all cases at once; each test then looks at one thing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.exceptions import MaxRetriesExceededError
from celery.result import AsyncResult
from django.core.management import call_command

from scheduler_app.broker import publisher as publishing
from scheduler_app.broker.publisher import Publisher
from scheduler_app.models import JobRun, Term
from tests.support import endings
from tests.support.brokers import broker_url
from tests.support.played import Played, look
from tests.support.programs import programs, wait_until
from tests.support.workload import echo

pytestmark = [pytest.mark.system, pytest.mark.django_db]  # the mark makes the database, also when only some run


HOUR = timedelta(hours=1)
# They wait for their retry.
NEVER_ENDS = {"a delay of too many seconds", "too many retries", "in an hour", "at a time in an hour"}


def cases(notes: Path) -> dict[str, AsyncResult[Any]]:
    """Every case, started; each notes in a file of its own."""
    at = {name: str(notes / name) for name in NOTING}
    started = {f"returning {what}": endings.returning.delay(what) for what in endings.RESULTS}
    started |= {f"raising {what}": endings.raising.delay(what) for what in endings.ERRORS}
    started |= {f"raising again {what}": endings.raising_again.delay(what) for what in endings.ERRORS}
    started |= {f"leaving by {how}": endings.leaving.delay(how) for how in LEAVING}
    started |= {f"choosy {kind}": endings.choosy.delay(at[f"choosy {kind}"], kind) for kind in CHOOSY}
    started |= {how: endings.ending.delay(how) for how in ON_PURPOSE}
    started |= {name: call(at[name]) for name, call in NOTING.items() if not name.startswith("choosy ")}
    deep = endings.returning_beyond_the_recursion_limit
    started["20,000 levels"] = deep.delay(20_000)
    started["5,000 levels before a link"] = deep.apply_async((5_000,), link=echo.s())
    started["no repr"] = endings.returning_what_has_no_repr.delay()
    started["giving up when exhausted"] = endings.giving_up_when_exhausted.delay()
    started["in an hour"] = endings.asking_for_much.delay(max_retries=3, countdown=3600)
    started["at a time in an hour"] = endings.retrying_at.delay((datetime.now(UTC) + HOUR).isoformat())
    started["too many retries"] = endings.asking_for_much.delay(max_retries=10**12, countdown=3600)
    return started


@pytest.fixture(scope="module", params=["postgres", pytest.param("rabbitmq", marks=pytest.mark.proof)])
def played(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any, tmp_path_factory: Any
) -> dict[str, Played]:
    """What became of every case on this broker."""
    notes = tmp_path_factory.mktemp("notes")
    url = broker_url(request.param)
    publisher = Publisher(url)
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patched, programs(request.param) as run:
        patched.setattr(publishing, "_publisher", publisher)
        Term.objects.all().delete()
        try:
            run.beat(EVERYSLOT_LOOP="0.1")
            worker = run.worker(concurrency=3, **endings.MODULES).ready()
            started = cases(notes)
            again = {"status": "queued", "attempts": 1, "pk__in": [started[name].id for name in NEVER_ENDS]}
            waiting = JobRun.objects.filter(finished_at=None, pk__in=[result.id for result in started.values()])
            wait_until(lambda: not waiting.exclude(**again).exists(), 90, "the end of every case")
            assert worker.alive
            assert echo.delay("alive").get(timeout=30, interval=0.05) == "alive"
            found = {name: look(result, notes / name) for name, result in started.items()}
        finally:
            publisher.close()
            for each in run.made:
                each.end()
            call_command("flush", interactive=False, verbosity=0)
    return found


# Results that cannot be stored

NOTED = {
    "a NUL character": "NUL",
    "a lone surrogate": "surrogate",
    "a surrogate as a key": "surrogate",
    "an object": "JSON",
    "not a number": "JSON",
    "infinity": "JSON",
    "a set": "JSON",
    "keys that are no text": "JSON",
    "huge text": "the limit is 262144",
    "many small ones": "the limit is 262144",
    "its own JSON": "no JSON today",
    "deep nesting": "deeper than 200",
    "deeper than Python recurses": "JSON",
}
STORED = {"nothing": None, "bytes": b"\xff\x00", "a large whole number": 10**4000}


def test_the_tables_know_every_case() -> None:
    assert NOTED.keys() | STORED.keys() == endings.RESULTS.keys()
    assert SAID.keys() == endings.ERRORS.keys()


@pytest.mark.parametrize(("what", "reason"), NOTED.items(), ids=NOTED.keys())
def test_a_result_that_cannot_be_stored_ends_its_run_as_succeeded_with_a_note(
    played: dict[str, Played], what: str, reason: str
) -> None:
    found = played[f"returning {what}"]
    assert (found.end, found.state) == (("succeeded", "", 1), "SUCCESS")
    assert found.answer["everyslot"] == "result not stored"
    assert reason in found.answer["reason"]
    assert len(found.answer["repr"]) < 3000


@pytest.mark.parametrize(("what", "value"), STORED.items(), ids=STORED.keys())
def test_a_result_comes_back_as_it_was(played: dict[str, Played], what: str, value: Any) -> None:
    assert (played[f"returning {what}"].end, played[f"returning {what}"].answer) == (("succeeded", "", 1), value)


@pytest.mark.parametrize("case", ["20,000 levels", "5,000 levels before a link"])
def test_a_result_nested_deeper_than_its_readers_can_is_noted_even_where_python_wrote_it(
    played: dict[str, Played], case: str
) -> None:
    assert played[case].end == ("succeeded", "", 1)
    assert "deeper than 200" in played[case].answer["reason"]


def test_a_result_that_even_celery_cannot_print_ends_its_run_with_the_reason(played: dict[str, Played]) -> None:
    found = played["no repr"]
    assert found.end == ("dead", "failed", 1)
    assert "Exceeds the limit (4300 digits) for integer string conversion" in found.row.last_error


# Errors

SAID = {
    "a NUL character": "ValueError: a\ufffdb",
    "huge text": "ValueError: xxxxx",
    "constructor arguments": "NeedsTwo",
    "unpicklable": "holds a function",
    "no message": "ValueError",
    "no words": "Unspeakable",
    "a group": "ExceptionGroup: two at once (2 sub-exceptions)",
    "recursion": "RecursionError: maximum recursion depth exceeded",
    "memory": "MemoryError: none left",
    "stop iteration": "StopIteration: enough",
    "a lone surrogate": "ValueError: ?",
}
LOST = {"memory"}  # a child without memory ends, whatever the task says
LEAVING = {
    "SystemExit": ("dead", "lost", 2),
    "KeyboardInterrupt": ("dead", "lost", 2),
    "GeneratorExit": ("dead", "failed", 1),
}
EXACT = {"no message": ValueError, "a group": Exception, "recursion": RecursionError, "huge text": ValueError}


@pytest.mark.parametrize("what", SAID)
@pytest.mark.parametrize(
    ("task", "expected"),
    [("raising", ("dead", "failed", 1)), ("raising again", ("dead", "attempts_exhausted", 2))],
    ids=["not retried", "retried"],
)
def test_every_error_ends_its_run_with_a_readable_reason(
    played: dict[str, Played], task: str, expected: tuple[str, str, int], what: str
) -> None:
    found = played[f"{task} {what}"]
    assert (found.end == expected) or (what in LOST and found.end[:2] == ("dead", "lost"))
    assert SAID[what] in found.row.last_error
    assert "\x00" not in found.row.last_error
    assert len(found.row.last_error.encode()) <= 16 * 1024
    assert len(found.attempts) == found.row.attempts
    assert all(len(each.traceback.encode()) <= 16 * 1024 for each in found.attempts)
    assert [letter.reason for letter in found.letters] == [found.row.reason]
    assert (found.state, isinstance(found.answer, EXACT.get(what, Exception))) == ("FAILURE", True)
    if what == "a group":
        assert "ValueError: one" in found.traceback
        assert "KeyError: 'two'" in found.traceback
    if what not in LOST:
        assert "Traceback (most recent call last)" in found.traceback


@pytest.mark.parametrize(("how", "expected"), LEAVING.items(), ids=LEAVING.keys())
def test_what_is_no_exception_ends_its_run_and_never_the_process_that_asks_for_the_result(
    played: dict[str, Played], how: str, expected: tuple[str, str, int]
) -> None:
    found = played[f"leaving by {how}"]
    assert (found.end, found.outcomes) == (expected, [expected[1]] * expected[2])
    assert found.row.last_error
    assert isinstance(found.answer, WorkerLostError if expected[1] == "lost" else Exception)


def test_a_run_over_its_time_limit_answers_as_celery_says(played: dict[str, Played]) -> None:
    found = played["overrunning"]
    assert (found.end, found.outcomes) == (("dead", "timed_out", 1), ["timed_out"])
    assert isinstance(found.answer, TimeLimitExceeded)
    assert "over its time limit of 1 s" in str(found.answer)


# Retries

NOTING: dict[str, Any] = {
    "overrunning": endings.overrunning.delay,
    "asking again": endings.asking_again.delay,
    "asking twice": lambda at: endings.asking_again.delay(at, succeed_at=2),
    "the cause given": endings.asking_again_with_the_cause.delay,
    "the cause given, no retries": lambda at: endings.asking_again_with_the_cause.delay(at, max_retries=0),
    "the cause given, one retry": lambda at: endings.asking_again_with_the_cause.delay(at, max_retries=1),
    "the cause given, three retries": lambda at: endings.asking_again_with_the_cause.delay(at, max_retries=3),
    "constant delay": endings.constant_delay.delay,
    "constant delay, the cause given": endings.constant_delay_with_the_cause.delay,
    "nested": endings.outer.delay,
    "later": endings.later.delay,
    "requeuing": endings.requeuing.delay,
    "a delay of too many seconds": lambda at: endings.later.delay(at, 1e18, 1),
    "a delay in words": lambda at: endings.later.delay(at, "soon", 1),
    "a delay of nothing": lambda at: endings.later.delay(at, None, 1),
}
CHOOSY = {
    "LookupError": ("dead", "attempts_exhausted", 3),  # the class
    "IndexError": ("dead", "attempts_exhausted", 3),  # one below it
    "KeyError": ("dead", "failed", 1),  # one below it that is excepted
    "ValueError": ("dead", "failed", 1),  # another
}
NOTING |= {f"choosy {kind}": None for kind in CHOOSY}
NOTING |= {
    "over its run timeout": endings.overrunning_at_last.delay,
    "retried for a while": endings.retried_for_a_while.delay,
    "asking for free for a while": endings.asking_for_free_for_a_while.delay,
}
NOTING |= {
    f"{kind} by its kind": partial(endings.waiting_by_kind.delay, kind=kind)
    for kind in ("IndexError", "KeyError", "PermissionError")
}
ON_PURPOSE = {
    "GiveUp": ("dead", "gave_up", "this will never work"),
    "Cancelled": ("cancelled", "requested", "enough"),
    "Ignore": ("succeeded", "ignored", ""),
    "Reject": ("dead", "rejected", "not for me"),
}


def test_self_retry_means_n_plus_one_attempts(played: dict[str, Played]) -> None:
    found = played["asking again"]
    assert (found.end, found.outcomes) == (("dead", "attempts_exhausted", 3), ["retry"] * 3)
    assert (found.row.task, found.row.max_attempts) == ("tests.a name of its own", 3)
    assert found.notes == ["0", "1", "2"]
    assert isinstance(found.answer, MaxRetriesExceededError)
    assert f"Can't retry tests.a name of its own[{found.row.pk}]" in str(found.answer)


def test_a_retry_that_succeeds_gives_its_result(played: dict[str, Played]) -> None:
    found = played["asking twice"]
    assert (found.end, found.outcomes) == (("succeeded", "", 2), ["retry", "returned"])
    assert (found.answer, found.row.last_error) == (1, "")


@pytest.mark.parametrize(
    ("case", "attempts"),
    [
        ("the cause given", 3),
        ("the cause given, no retries", 1),
        ("the cause given, one retry", 2),
        ("the cause given, three retries", 4),
    ],
)
def test_the_cause_given_to_retry_is_the_error_when_the_attempts_are_used_up(
    played: dict[str, Played], case: str, attempts: int
) -> None:
    found = played[case]
    assert (found.end, found.outcomes) == (("dead", "attempts_exhausted", attempts), ["retry"] * attempts)
    assert found.notes == [str(n) for n in range(attempts)]
    assert {each.error for each in found.attempts} == {found.row.last_error} == {"LookupError: not there yet"}
    assert all("raise LookupError" in each.traceback for each in found.attempts)
    assert (type(found.answer), str(found.answer)) == (LookupError, "not there yet")
    assert [letter.reason for letter in found.letters] == ["attempts_exhausted"]


@pytest.mark.parametrize(("kind", "expected"), CHOOSY.items(), ids=CHOOSY.keys())
def test_only_the_named_classes_are_tried_again(
    played: dict[str, Played], kind: str, expected: tuple[str, str, int]
) -> None:
    found = played[f"choosy {kind}"]
    assert (found.end, found.notes) == (expected, [kind] * expected[2])
    assert found.outcomes == (["retry"] * 3 if expected[2] == 3 else ["failed"])
    assert found.row.last_error.startswith(f"{kind}: ")
    assert "in choosy" in found.traceback
    assert type(found.answer).__name__ == kind


def test_a_run_over_its_timeout_is_killed_and_has_no_further_attempt(played: dict[str, Played]) -> None:
    found = played["over its run timeout"]
    assert (found.end, found.outcomes) == (("dead", "timed_out", 2), ["retry", "timed_out"])
    assert found.row.last_error == "over its run timeout: 1.5 s after its first attempt started"
    assert found.row.first_started_at == found.attempts[0].started_at
    assert found.row.max_attempts == 5


def test_no_retry_begins_after_its_time_also_where_it_costs_no_attempt(played: dict[str, Played]) -> None:
    for case, outcome in {"retried for a while": "retry", "asking for free for a while": "retry"}.items():
        found = played[case]
        assert found.end[:2] == ("dead", "out_of_time")
        assert set(found.outcomes) == {outcome}
        lasted = (found.attempts[-1].started_at - found.attempts[0].started_at).total_seconds()
        assert lasted < 2.5
        assert len(found.attempts) in (2, 3)


@pytest.mark.parametrize("kind", ["PermissionError", "KeyError"])
def test_an_error_is_given_up_on_by_its_kind_and_a_broken_wait_costs_no_retry(
    played: dict[str, Played], kind: str
) -> None:
    found = played[f"{kind} by its kind"]
    expected = {"PermissionError": ("dead", "failed", 1), "KeyError": ("dead", "attempts_exhausted", 2)}[kind]
    assert (found.end, len(found.notes)) == (expected, expected[2])


@pytest.mark.parametrize("case", ["constant delay", "constant delay, the cause given", "IndexError by its kind"])
def test_a_constant_delay_lies_between_the_attempts(played: dict[str, Played], case: str) -> None:
    found = played[case]
    first, second = found.attempts
    assert found.end == ("dead", "attempts_exhausted", 2)
    assert (found.row.run_after - first.finished_at).total_seconds() == pytest.approx(0.2, abs=0.05)
    assert second.started_at >= found.row.run_after


def test_a_retry_inside_a_task_called_as_a_function_is_its_callers_error(played: dict[str, Played]) -> None:
    found = played["nested"]
    assert (found.end, found.notes) == (("dead", "attempts_exhausted", 2), ["outer", "inner"] * 2)
    assert found.row.last_error == "LookupError: inside"


def test_a_task_may_say_more_when_its_retries_are_used_up(played: dict[str, Played]) -> None:
    found = played["giving up when exhausted"]
    assert (found.end, found.outcomes) == (("dead", "gave_up", 2), ["retry", "gave_up"])
    assert "the other side is gone for good" in found.row.last_error


def test_retry_later_costs_no_attempt(played: dict[str, Played]) -> None:
    found = played["later"]
    assert (found.end, found.row.max_attempts, found.answer) == (("succeeded", "", 4), 4, 4)
    assert found.notes == ["later"] * 4


def test_a_reject_with_requeue_costs_no_attempt(played: dict[str, Played]) -> None:
    found = played["requeuing"]
    assert (found.end, found.outcomes, found.answer) == (("succeeded", "", 2), ["requeued", "returned"], 2)


@pytest.mark.parametrize(("how", "expected"), ON_PURPOSE.items(), ids=ON_PURPOSE.keys())
def test_what_a_task_raises_on_purpose_ends_its_run_at_once(
    played: dict[str, Played], how: str, expected: tuple[str, str, str]
) -> None:
    found = played[how]
    assert found.end == (*expected[:2], 1)
    assert expected[2] in found.row.last_error
    assert len(found.letters) == (1 if expected[0] == "dead" else 0)


@pytest.mark.parametrize("case", ["a delay in words", "a delay of nothing"])
def test_a_delay_that_is_none_is_the_runs_own(played: dict[str, Played], case: str) -> None:
    assert (played[case].end, played[case].answer) == (("succeeded", "", 2), 2)


def test_a_delay_past_the_end_of_time_is_as_long_as_the_database_can_write(played: dict[str, Played]) -> None:
    found = played["a delay of too many seconds"]
    assert (found.state, found.row.run_after.year > 2030) == ("RETRY", True)
    assert "not ready" in found.row.last_error


@pytest.mark.parametrize("case", ["in an hour", "at a time in an hour"])
def test_a_retry_waits_for_as_long_as_the_task_has_asked(played: dict[str, Played], case: str) -> None:
    found = played[case]
    assert found.state == "RETRY"
    (attempt,) = found.attempts
    waits = found.row.run_after - attempt.finished_at
    assert HOUR - timedelta(minutes=2) < waits <= HOUR + timedelta(seconds=2), "an eta was reckoned at the call"


def test_more_retries_than_a_column_holds_are_as_many_as_it_does(played: dict[str, Played]) -> None:
    assert (played["too many retries"].state, played["too many retries"].row.max_attempts) == ("RETRY", 1_000_000_000)
