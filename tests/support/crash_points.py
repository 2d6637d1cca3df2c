"""Crash points: Python for `before=` of a program, which sends the program a signal at a chosen function, once.

    run.worker(before=trap("scheduler_app.worker.ledger:write", armed, when="lambda written, *_: written.claimed"))

The trap springs when the file `armed` is there, and takes it away: so it springs once, however many programs have it,
and a test chooses when and sees whether it did. A worker's pool is forked after the trap is set: there too it is the
parent that gets the signal.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import reduce, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

SETUP = """
import os
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
import django
django.setup()
from tests.support.crash_points import set_trap
"""


def trap(
    function: str,
    armed: Path,
    *,
    before: bool = False,
    when: str = "lambda *_, **__: True",
    giving: str = "",
    number: int = signal.SIGKILL,
) -> str:
    """The Python that sends signal `number` right after the function returned, or right `before` it is called.

    `function` is `module:name` or `module:Class.name`, where its caller looks it up. `when` is the text of a function
    of its arguments, with the result first if it has returned. `giving` is the text of a function from its arguments
    to those that it gets instead, to let it do a part of its work.
    """
    how = f"before={before}, when={when}, giving={giving or None}, number={int(number)}"
    return f"{SETUP}set_trap({function!r}, {str(armed)!r}, {how})"


def set_trap(
    function: str,
    armed: str,
    *,
    before: bool,
    when: Callable[..., object],
    giving: Callable[..., tuple[Any, ...]] | None,
    number: int,
) -> None:
    """What the text of `trap` calls inside the program."""
    module, _, path = function.partition(":")
    *owners, name = path.split(".")
    owner = reduce(getattr, owners, import_module(module))
    original = getattr(owner, name)
    process = os.getpid()

    def spring() -> None:
        try:
            os.unlink(armed)
        except FileNotFoundError:
            return
        os.kill(process, number)
        if number == signal.SIGKILL:
            threading.Event().wait()  # not one step further, whichever thread or child this is

    @wraps(original)
    def trapped(*args: Any, **kwargs: Any) -> Any:
        if before:
            if when(*args, **kwargs):
                spring()
            return original(*args, **kwargs)
        result = original(*(giving(*args, **kwargs) if giving else args), **({} if giving else kwargs))
        if when(result, *args, **kwargs):
            spring()
        return result

    setattr(owner, name, trapped)
