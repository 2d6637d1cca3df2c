"""Text and results that PostgreSQL can store. Pure.

PostgreSQL takes neither NUL characters nor lone surrogates, in text or inside jsonb (manual, "JSON Types"), and JSON
has no NaN. What cannot be stored is replaced by a readable note, never by an error: a run always ends.
"""

from __future__ import annotations

import re
from typing import Any

from scheduler_app.core.limits import ERROR_BYTES

REPLACEMENT = "\ufffd"
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


def storable(text: str, limit: int = ERROR_BYTES) -> str:
    """The text without NUL and lone surrogates, cut to at most `limit` bytes of UTF-8 with the cut said."""
    clean = text.replace("\x00", REPLACEMENT).encode("utf-8", "replace")
    if len(clean) <= limit:
        return clean.decode("utf-8")
    mark = f"\n… cut: {len(clean)} bytes in all"
    room = limit - len(mark.encode())
    if room < 0:  # too little even for the mark
        return clean[:limit].decode("utf-8", "ignore")
    return clean[:room].decode("utf-8", "ignore") + mark


def unstorable_string(value: Any) -> str | None:
    """Why some string inside a JSON value cannot be stored, or None."""
    if isinstance(value, str):
        if "\x00" in value:
            return "holds a NUL character"
        return "holds a lone surrogate" if any("\ud800" <= char <= "\udfff" for char in value) else None
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        return None
    return next((why for part in parts if (why := unstorable_string(part))), None)


def looks_unstorable(encoded: str) -> bool:
    """A quick look at encoded JSON: False means that it is fine, True that the value must be looked through."""
    return _SUSPECT.search(encoded) is not None


def describe(error: BaseException) -> str:
    """`package.module.Class: message`, as a traceback ends; a message that cannot be shown is said to be so."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(error)
    except Exception as failure:
        message = f"<its message cannot be shown: {type(failure).__name__}>"
    return storable(f"{name}: {message}" if message else name)


NOT_STORED = "result not stored"


def note(reason: str, value: object = None, limit: int = 2000) -> dict[str, str]:
    """What stands in the place of a result that could not be stored."""
    try:
        shown = repr(value)
    except Exception as error:
        shown = f"<its repr raised {type(error).__name__}>"
    return {"everyslot": NOT_STORED, "reason": storable(reason, 500), "repr": storable(shown, limit)}


def is_note(result: object) -> bool:
    """Whether this is `note`'s, and not a result."""
    return isinstance(result, dict) and result.get("everyslot") == NOT_STORED
