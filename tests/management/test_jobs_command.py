"""`manage.py jobs`: what it prints, what it refuses, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, ProgrammingError

from scheduler_app.lifecycle import define
from scheduler_app.management.cli import VERBS
from scheduler_app.management.cli.output import clean
from scheduler_app.management.commands.jobs import Command
from scheduler_app.models import DeadLetter, Job, JobRun
from tests.support.definitions import a_job, a_run, known_tasks, options

pytestmark = pytest.mark.django_db


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def jobs(*words: str) -> Said:
    out, err = StringIO(), StringIO()
    try:
        call_command("jobs", *words, stdout=out, stderr=err)
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    return Said(code, out.getvalue(), err.getvalue())


@pytest.fixture(autouse=True)
def _tasks() -> Iterator[None]:
    with known_tasks(options()):
        yield


def test_a_job_is_added_listed_shown_and_removed() -> None:
    said = jobs("add", "nightly", "--task", "tests.report", "--schedule", "0 2 * * *", "--tz", "Europe/Berlin")
    assert (said.code, said.err) == (0, "")
    assert "It first runs at" in said.out
    assert "nightly" in jobs("list").out
    assert "nightly" not in jobs("list", "weekly").out
    shown = jobs("show", "nightly").out
    assert "At 02:00, every day, Europe/Berlin time." in shown
    assert "5, after 1 s doubling to 600 s at random" in shown
    assert jobs("remove", "nightly").code == 0
    assert jobs("list", "--json").data == []


def test_all_faults_are_told_with_their_fields_and_nothing_is_added() -> None:
    said = jobs(
        "add", "bad", "--task", "gone", "--schedule", "99 * * * *", "--tz", "Mars/Base", "--payload", "[1",
        "--time-limit", "0",
    )  # fmt: skip
    assert said.code == 1
    assert [line.split(":")[1].strip() for line in said.err.splitlines()] == [
        "task", "time_limit", "timezone", "schedule", "payload",
    ]  # fmt: skip
    assert not Job.objects.exists()


def test_the_command_refuses_in_the_words_of_the_code() -> None:
    fields = {"name": "bad", "task": "tests.report", "payload": {"year": 1}, "time_limit": 0}
    said = jobs("add", "bad", "--task", "tests.report", "--payload", '{"year": 1}', "--time-limit", "0", "--json")
    assert [(each["field"], each["reason"]) for each in json.loads(said.err)["error"]["faults"]] == [
        (fault.field, fault.reason) for fault in define.validate(fields)
    ]


def test_what_is_not_there_is_exit_code_1_and_a_bad_command_line_2() -> None:
    assert jobs("show", "nobody").err == "refused: there is no job 'nobody'\n"
    assert jobs("show", "nobody").code == 1
    command = Command()
    command._called_from_command_line = True  # type: ignore[attr-defined]
    parser = command.create_parser("manage.py", "jobs")
    for words in (
        ["dance"],
        [],
        ["redrive"],
        ["redrive", "no-id"],
        ["runs", "-n", "0"],
        ["pause", "x", "--until", "soon"],
    ):
        with pytest.raises(SystemExit) as caught:
            parser.parse_args(words)
        assert caught.value.code == 2


def test_next_explains_an_expression_or_a_job() -> None:
    said = jobs("next", "30 9 * * 1", "--tz", "Europe/Berlin", "-n", "2", "--json").data
    assert (said["words"], said["timezone"]) == ("At 09:30, on Monday, Europe/Berlin time.", "Europe/Berlin")
    assert [slot["local"][11:16] for slot in said["slots"]] == ["09:30", "09:30"]
    a_job(schedule="@daily")
    assert jobs("next", "report", "--json").data["schedule"] == "@daily"
    assert "timezone: 'Mars/Base' is not a known IANA time zone" in jobs("next", "report", "--tz", "Mars/Base").err
    assert jobs("next", "at noon").code == 1


def test_run_starts_a_run_and_says_its_id() -> None:
    a_job()
    assert jobs("run", "report", "--json").data["id"] == str(JobRun.objects.get().pk)
    said = jobs("run", "report", "--payload", '{"year": 1}')
    assert (said.code, "payload: does not fit" in said.err) == (1, True)


def test_run_and_wait_is_0_only_for_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_job()
    for status, code in (("succeeded", 0), ("dead", 1)):
        ended = a_run(job, status=status, last_error="Traceback:\nboom")
        monkeypatch.setattr("scheduler_app.management.cli.start.run_now", lambda *args, ended=ended: ended.id)
        said = jobs("run", "report", "--wait")
        assert (said.code, f"It is {status}" in said.out) == (code, True)
    assert "failed: boom" in said.out


def test_pause_and_resume() -> None:
    a_job()
    said = jobs("pause", "report", "--until", "2h", "--reason", "the disk is full")
    assert "until" in said.out
    assert "the disk is full" in jobs("show", "report").out
    assert jobs("list", "--json").data[0]["state"] == "paused"
    assert jobs("resume", "report", "--json").data["paused_until"] is None
    assert "until somebody resumes it" in jobs("pause", "report").out
    assert jobs("show", "report", "--json").data["paused"] is True
    assert "lies in the past" in jobs("pause", "report", "--until", "2020-01-01T00:00:00Z").err


def test_sync_makes_jobs_of_declared_schedules() -> None:
    with known_tasks(options(schedule="@daily")):
        assert jobs("sync", "--json").data["created"] == ["tests.report"]
        a_job(name="mine")
    with known_tasks(options(schedule="@daily", job_name="mine")):
        said = jobs("sync")
    assert said.code == 1
    assert "is taken by a job of origin admin" in said.out


def test_runs_and_dead_runs_are_listed_with_their_reasons() -> None:
    job = a_job()
    a_run(job, status="succeeded")
    a_run(job, status="dead", attempts=5, last_error="Traceback …\nOSError: no room")
    assert [row["status"] for row in jobs("runs", "report", "--json").data] == ["dead", "succeeded"]
    assert len(jobs("runs", "--status", "succeeded", "--json").data) == 1
    assert "failed: OSError: no room" in jobs("dead").out
    assert "There are no such runs." in jobs("runs", "--status", "running").out


def test_redrive_chooses_among_the_dead_shows_them_and_spreads_them() -> None:
    job = a_job()
    runs = [a_run(job, status="dead", attempts=1, last_error=f"OSError: disk {n}") for n in range(4)]
    a_run(status="dead", last_error="ValueError")
    chosen = ("redrive", "--all-dead", "--why", "failed", "--error", "OSError", "--since", "1h", "--limit", "3")
    shown = jobs(*chosen, "--dry-run", "--json").data
    assert [each["id"] for each in shown] == [str(run.pk) for run in runs[:3]]
    assert JobRun.objects.filter(status="queued").count() == 0
    assert jobs(*chosen, "--rate", "2", "--json").data == {"redriven": [str(run.pk) for run in runs[:3]]}
    times = [JobRun.objects.get(pk=run.pk).run_after for run in runs[:3]]
    assert [round((time - times[0]).total_seconds(), 1) for time in times] == [0.0, 0.5, 1.0]
    assert jobs("redrive", "--all-dead", "--until", "1h").code == 0
    assert JobRun.objects.filter(status="dead").count() == 2


def test_redrive_refuses_what_it_cannot_mean() -> None:
    run = a_run(status="dead")
    said = jobs("redrive", str(run.pk), "--error", "x")
    assert (said.code, "--error chooses among the runs of --job or --all-dead" in said.err) == (1, True)
    assert "rate: must be above 0" in jobs("redrive", str(run.pk), "--rate", "0").err
    assert "max_attempts: must be raised by 1 to" in jobs("redrive", str(run.pk), "--attempts", "3000000000").err
    run.refresh_from_db()
    assert run.status == "dead"


def test_letters_are_listed_and_discarded_with_a_reason() -> None:
    run = a_run(status="dead")
    letter = DeadLetter.objects.create(
        run_id=run.pk, attempt=0, task=run.task, reason="failed", detail="OSError: no room"
    )
    assert "failed: OSError: no room" in jobs("letters").out
    said = jobs("discard", str(letter.pk), "999999", "--reason", "rubbish")
    assert (said.code, "discarded" in said.out) == (1, True)
    assert "999999: there is no such dead letter" in said.err
    assert jobs("letters", "--json").data == []
    (told,) = jobs("letters", "--all", "--json").data
    assert (told["decision"], told["decision_reason"], told["run"]) == ("discarded", "rubbish", str(run.pk))
    assert "it is discarded already" in jobs("discard", str(letter.pk), "--reason", "again").err
    assert jobs("discard", str(letter.pk), "--reason", " ").err == (
        "refused: reason: must say why nobody is to work on this again\n"
    )


def test_redrive_and_cancel_say_what_they_could_not_do() -> None:
    job = a_job()
    dead, done, queued = a_run(job, status="dead"), a_run(job, status="succeeded"), a_run(job)
    said = jobs("redrive", str(dead.pk), str(done.pk))
    assert (said.code, str(dead.pk) in said.out) == (1, True)
    assert f"{done.pk}: it is succeeded, not dead or cancelled" in said.err
    assert jobs("redrive", "--job", "report").code == 0
    assert jobs("cancel", "--job", "report", "--json").data["cancelled"] == [str(dead.pk), str(queued.pk)]
    assert jobs("cancel", str(done.pk)).code == 1


def test_a_job_with_a_broken_zone_is_still_shown() -> None:
    a_job()
    Job.objects.update(timezone="Mars/Base")
    assert jobs("list").code == 0
    said = jobs("show", "report")
    assert (said.code, "cannot run: timezone: 'Mars/Base' is not a known" in said.out) == (0, True)


def test_text_of_others_cannot_steer_the_terminal() -> None:
    assert clean("\x1b[2Jgone\x07\n") == "\\x1b[2Jgone\\x07\n"
    a_run(status="dead", last_error="[red]\x1b[2J[/red]")
    assert "[red]\\x1b[2J[/red]" in jobs("dead").out


def test_every_verb_has_help_and_json() -> None:
    parser = Command().create_parser("manage.py", "jobs")
    verbs = parser._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert list(verbs) == [verb.name for verb in VERBS]  # type: ignore[arg-type]
    for name, its in verbs.items():  # type: ignore[union-attr]
        assert "--json" in its.format_help(), name


@pytest.mark.parametrize(
    "error", [OperationalError("connection refused\nIs the server running?"), ProgrammingError("no table")]
)
@pytest.mark.parametrize("words", [("list",), ("list", "--json")])
def test_a_database_that_cannot_be_used_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: tuple[str, ...]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("scheduler_app.management.commands.jobs.load_tasks", fail)
    said = jobs(*words)
    assert (said.code, said.out) == (1, "")
    message = json.loads(said.err)["error"]["message"] if "--json" in words else said.err
    assert f"the database cannot be used: {str(error).partition(chr(10))[0]}" in message
    assert len(said.err.splitlines()) == 1
