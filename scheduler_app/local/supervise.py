"""Run a piece of work so that nothing it starts outlives it, however it ends.

Two processes watch each other: the outer one only waits; the inner one works. If the inner one ends in any way, the
outer one ends all that is left of it and removes its folder. If the outer one is killed, the kernel tells the inner
one, which then stops its services itself. What would break this: killing both with SIGKILL at once (the services
still end, their folder stays).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from scheduler_app.local.leftovers import end_descendants
from scheduler_app.local.processes import adopt_orphans, dies_with_parent

REPEAT = 0.2  # seconds
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """Someone asked us to stop; raised once, in the main thread. Not an Exception, so that no `except` swallows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name}")


def supervise(work: Callable[[Path], int]) -> int:
    """Run `work(folder)` in a child with a private folder that is removed afterwards; returns its exit code.

    The last thing that a program does: requests to stop are ignored from the end of the work on.
    """
    folder = Path(tempfile.mkdtemp(prefix="everyslot-"))
    folder.chmod(0o711)  # a service may run as another user: it passes through, it cannot list
    adopt_orphans()
    bind = dies_with_parent(signal.SIGTERM)
    sys.stdout.flush()
    sys.stderr.flush()
    # Until each side has its own handlers a request to stop waits, or it could be lost between the two.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    child = os.fork()
    if child == 0:
        _inner(work, folder, bind)
    _forward_to(child)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    code = _await(child)
    for each in ENDING:  # our last steps, and Python's own, are not to be broken off
        signal.signal(each, signal.SIG_IGN)
    if leftovers := end_descendants():
        print(f"ended {len(leftovers)} processes that were left: {', '.join(leftovers)}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    return code


def _inner(work: Callable[[Path], int], folder: Path, bind: Callable[[], None] | None) -> None:
    code = 1
    try:
        _raise_once()
        if bind:
            bind()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        code = work(folder)
    except Interrupted as stop:
        signal.setitimer(signal.ITIMER_REAL, 0)
        code = 128 + stop.number
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _raise_once() -> None:
    """The first signal raises Interrupted; later ones must not break the cleaning up that follows.

    Python swallows what is raised inside a finalizer or a callback of C code. So a timer looks whether the exception is
    on its way, and raises it again until it is.
    """

    def first(number: int, _: FrameType | None) -> None:
        for each in ENDING:
            signal.signal(each, lambda *_: None)
        signal.signal(signal.SIGALRM, lambda *_: again(number))
        signal.setitimer(signal.ITIMER_REAL, REPEAT, REPEAT)
        raise Interrupted(number)

    def again(number: int) -> None:
        if not _on_its_way(sys.exc_info()[1]):
            raise Interrupted(number)

    for each in ENDING:
        signal.signal(each, first)


def _on_its_way(error: BaseException | None) -> bool:
    """Whether what is handled at this moment (in a `finally`, an `__exit__`) is an Interrupted, or came after one."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None


def _forward_to(child: int) -> None:
    """Pass a request to stop on to the child (the terminal may have told it too)."""

    def handle(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for each in ENDING:
        signal.signal(each, handle)


def _await(child: int) -> int:
    """Wait for the child, burying adopted orphans on the way."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
