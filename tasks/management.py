"""Running one of Django's commands, if the operator allows it."""

from __future__ import annotations

import io
from typing import Any

from django.conf import settings
from django.core.management import call_command

from scheduler_app import current_run, durable_task
from scheduler_app.core.errors import GiveUp

MAX_ARGUMENTS = 50
MAX_ARGUMENT = 1000  # characters
MAX_OUTPUT = 16_000  # characters kept, the last ones


class CommandFailed(Exception):
    """The command left with an exit code; the run is tried again."""


class Tail(io.StringIO):
    """Keeps the last characters of what is written, so that a talkative command costs no memory."""

    def write(self, text: str) -> int:
        kept = self.getvalue()[-MAX_OUTPUT:] if self.tell() > 2 * MAX_OUTPUT else None
        if kept is not None:
            self.seek(0)
            self.truncate()
            super().write(kept)
        return super().write(text[-MAX_OUTPUT:])


@durable_task(time_limit=3600, queue="slow", long_running=True)
def run_command(command: str, arguments: list[str] | None = None) -> dict[str, Any]:
    """Run `manage.py COMMAND ARGUMENTS…` in this process; only commands named in EVERYSLOT_COMMANDS are run.

    A run whose command has succeeded does not run it again; a command that is cut off is run again, so allow only
    those that bear it. Returns `output`, the last 16,000 characters of what it printed. Gives up on a command that is
    not allowed; whatever the command raises, and an exit code other than 0, is tried again.
    """
    if command not in settings.EVERYSLOT_COMMANDS:
        allowed = ", ".join(sorted(settings.EVERYSLOT_COMMANDS)) or "none"
        raise GiveUp(f"the command {str(command)[:100]!r} is not allowed (EVERYSLOT_COMMANDS allows: {allowed})")
    words = _words(arguments)
    run = current_run()
    known = run.remembered("done")
    if known is not None:
        return dict(known)
    output = _output(command, words)
    return dict(run.step("done", lambda: {"output": output}))


def _output(command: str, words: list[str]) -> str:
    out = Tail()
    try:
        call_command(command, *words, stdout=out, stderr=out, no_color=True)
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise CommandFailed(f"{command} left with {leaving.code}: {out.getvalue()[-1000:]}") from None
    return out.getvalue()[-MAX_OUTPUT:].replace("\0", "\ufffd")


def _words(arguments: list[str] | None) -> list[str]:
    words = list(arguments or [])
    if len(words) > MAX_ARGUMENTS or not all(isinstance(word, str) and len(word) <= MAX_ARGUMENT for word in words):
        raise GiveUp(f"arguments must be at most {MAX_ARGUMENTS} strings of {MAX_ARGUMENT} characters")
    return words
