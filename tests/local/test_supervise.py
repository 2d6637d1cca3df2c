"""Nothing that supervised work starts outlives it, whichever way it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduler_app.local.processes import LINUX, wait_for

SCRIPT = Path(__file__).with_name("supervised.py")
ROOT = Path(__file__).resolve().parents[2]
CODE = 7
DEADLINE = 30.0

Begin = Callable[[str], tuple[subprocess.Popen[str], dict[str, int]]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start supervised work; returns its outer process and what it started, once that is up."""
    started: list[subprocess.Popen[str]] = []

    def start(ending: str) -> tuple[subprocess.Popen[str], dict[str, int]]:
        facts = tmp_path / "facts"
        environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
        argv = [sys.executable, str(SCRIPT), str(facts), ending]
        process = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        assert wait_for(lambda: facts.exists() or process.poll() is not None, DEADLINE)
        return process, json.loads(facts.read_text())

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def gone(facts: dict[str, int]) -> bool:
    return not any(alive(facts[name]) for name in ("inner", "service", "daemon"))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not LINUX or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def assert_nothing_left(facts: dict[str, int]) -> None:
    assert wait_for(lambda: gone(facts), DEADLINE)
    assert not Path(str(facts["folder"])).exists()


@pytest.mark.parametrize(("ending", "code"), [("return", CODE), ("leave", CODE), ("raise", 1)])
def test_nothing_is_left_when_the_work_ends_by_itself(begin: Begin, ending: str, code: int):
    process, facts = begin(ending)
    _, words = process.communicate(timeout=DEADLINE)
    assert process.returncode == code
    assert ("ZeroDivisionError" in words) == (ending == "raise")
    assert "ended 1 processes that were left" in words
    assert_nothing_left(facts)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_after_a_request_to_stop(begin: Begin, number: signal.Signals):
    process, facts = begin("wait")
    process.send_signal(number)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + number
    assert_nothing_left(facts)


def test_a_request_to_stop_is_heard_where_python_swallows_exceptions(begin: Begin):
    process, facts = begin("swallow")
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=DEADLINE)
    assert "Exception ignored in" in words, "or this test shows nothing"
    assert process.returncode == 128 + signal.SIGINT
    assert_nothing_left(facts)


def test_ctrl_c_pressed_again_and_again_does_not_break_the_cleaning(begin: Begin):
    process, facts = begin("wait")
    while process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)  # the terminal tells the whole group
        wait_for(lambda: process.poll() is not None, 0.05)
    assert process.returncode == 128 + signal.SIGINT
    assert_nothing_left(facts)


def test_nothing_is_left_when_the_inner_process_is_killed(begin: Begin):
    process, facts = begin("wait")
    os.kill(facts["inner"], signal.SIGKILL)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + signal.SIGKILL
    assert_nothing_left(facts)


@pytest.mark.skipif(not LINUX, reason="only Linux tells a child of its parent's death")
def test_services_end_when_the_outer_process_is_killed(begin: Begin):
    process, facts = begin("wait")
    process.kill()
    process.wait(DEADLINE)
    try:
        assert wait_for(lambda: not alive(facts["inner"]) and not alive(facts["service"]), DEADLINE)
    finally:
        os.kill(facts["daemon"], signal.SIGKILL)  # it has our pipe, and nobody is left to end it
