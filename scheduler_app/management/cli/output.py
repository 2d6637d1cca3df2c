"""What the command prints: tables and sentences for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from django.core.serializers.json import DjangoJSONEncoder
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scheduler_app.core.errors import EveryslotError
from scheduler_app.lifecycle.rules import InvalidJob
from scheduler_app.lifecycle.timing import shown_zone

PIPE_WIDTH = 240  # columns where nobody looks: lines are for other programs and must not be cut
COLOURS = {
    "enabled": "green",
    "succeeded": "green",
    "running": "cyan",
    "queued": "blue",
    "paused": "yellow",
    "skipped": "yellow",
    "quarantined": "red",
    "dead": "red",
}


class Output:
    """Prints to `out` and `err`; with `as_json`, people's sentences go away and `data` is all there is."""

    def __init__(self, out: TextIO, err: TextIO, as_json: bool) -> None:
        self.out = out
        self.as_json = as_json
        self._people = _console(out)
        self._faults = _console(err)

    def data(self, value: Any) -> None:
        """The answer for programs; nothing in the other mode."""
        if self.as_json:
            self.out.write(json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2) + "\n")

    def say(self, text: str) -> None:
        """A sentence for people."""
        if not self.as_json:
            self._people.print(Text(clean(text)))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str = "Nothing found.") -> None:
        """A table for people."""
        if self.as_json:
            return
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in columns:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(_cell(value) for value in row))
        if table.row_count or empty:
            self._people.print(table if table.row_count else Text(empty))

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Names and values, one a line, without what is empty."""
        if self.as_json:
            return
        table = Table.grid(padding=(0, 2))
        for name, value in pairs:
            if value not in (None, "", [], {}):
                table.add_row(Text(name, style="bold"), _cell(value))
        self._people.print(table)

    def fault(self, error: EveryslotError) -> None:
        """Why it was refused, on the error stream; one line a fault."""
        faults = error.faults if isinstance(error, InvalidJob) else (error,)
        if self.as_json:
            listed = [
                {"field": getattr(each, "field", None), "reason": getattr(each, "reason", str(each))} for each in faults
            ]
            document = {"error": {"code": error.code, "message": str(error), "faults": listed}}
            self._faults.file.write(json.dumps(document, ensure_ascii=False) + "\n")
            return
        for each in faults:
            self._faults.print(Text(clean(f"refused: {each}")))

    def refusal(self, reason: str) -> None:
        """A reason on the error stream."""
        if self.as_json:
            self._faults.file.write(
                json.dumps({"error": {"code": "refused", "message": reason}}, ensure_ascii=False) + "\n"
            )
        else:
            self._faults.print(Text(clean(f"refused: {reason}")))


def clean(text: str) -> str:
    """Text that cannot steer a terminal: line ends and tabs stay, other control characters are shown."""
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)


def instant(moment: datetime | None, zone: str = "UTC") -> str:
    """An instant to the second, in a zone with its offset."""
    if moment is None:
        return ""
    if zone == "UTC":
        return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{moment.astimezone(shown_zone(zone)):%Y-%m-%d %H:%M:%S %z}"


def _cell(value: object) -> Text:
    text = clean(str(value) if value is not None else "")
    return Text(text, style=COLOURS.get(text, ""))


def _console(file: TextIO) -> Console:
    is_terminal = file.isatty() if hasattr(file, "isatty") else False
    return Console(file=file, highlight=False, markup=False, emoji=False, width=None if is_terminal else PIPE_WIDTH)
