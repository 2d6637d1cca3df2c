"""Django's commands: only the allowed ones, and what they leave."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from django.core.management import BaseCommand, CommandError, call_command

from scheduler_app.core.errors import GiveUp
from scheduler_app.testing import run_as
from tasks import management

pytestmark = pytest.mark.django_db


class Speaking(BaseCommand):
    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("words", nargs="*")
        parser.add_argument("--leave", type=int)
        parser.add_argument("--fail", action="store_true")

    def handle(self, *args: Any, words: list[str], leave: int | None, fail: bool, **options: Any) -> None:
        for word in words:
            self.stdout.write(word * 1000)
        if fail:
            raise CommandError("not today")
        if leave is not None:
            sys.exit(leave)


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.EVERYSLOT_COMMANDS = ["speak", "clearsessions"]
    call = call_command
    monkeypatch.setattr(
        management, "call_command", lambda name, *w, **o: call(Speaking() if name == "speak" else name, *w, **o)
    )


def test_an_allowed_command_is_run_and_its_output_kept() -> None:
    assert run_as(management.run_command, "speak", ["a"]) == {"output": "a" * 1000 + "\n"}
    assert run_as(management.run_command, "clearsessions") == {"output": ""}


def test_only_the_end_of_a_long_output_is_kept() -> None:
    output = run_as(management.run_command, "speak", ["a"] * 30 + ["b"])["output"]
    assert len(output) == management.MAX_OUTPUT
    assert output.endswith("a\n" + "b" * 1000 + "\n")


@pytest.mark.parametrize("command", ["flush", "", "speak ", "../speak", "shell"])
def test_a_command_that_is_not_allowed_is_refused(command: str) -> None:
    with pytest.raises(GiveUp, match=r"not allowed \(EVERYSLOT_COMMANDS allows: clearsessions, speak\)"):
        run_as(management.run_command, command)


def test_an_exit_code_is_an_error_and_not_the_end_of_the_worker() -> None:
    with pytest.raises(management.CommandFailed, match="left with 3"):
        run_as(management.run_command, "speak", ["--leave", "3"])
    assert run_as(management.run_command, "speak", ["--leave", "0"]) == {"output": ""}


def test_what_a_command_raises_is_tried_again() -> None:
    with pytest.raises(CommandError, match="not today"):
        run_as(management.run_command, "speak", ["--fail"])
    with pytest.raises(CommandError, match="unrecognized arguments"):
        run_as(management.run_command, "speak", ["--none"])


@pytest.mark.parametrize("arguments", [["a"] * 51, ["a" * 1001], [1], ["a", None]])
def test_arguments_out_of_bounds_are_refused(arguments: Any) -> None:
    with pytest.raises(GiveUp, match="arguments must be"):
        run_as(management.run_command, "speak", arguments)
