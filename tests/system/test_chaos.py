"""Half a minute of `make chaos`, the short form of the ten minutes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.programs import ROOT

pytestmark = pytest.mark.system
SEED = 7


@pytest.mark.timeout(300)
def test_half_a_minute_of_chaos_breaks_no_promise() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "0.6", "--seed", str(SEED)]
    played = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False, timeout=280)
    assert played.returncode == 0, played.stdout + played.stderr
    assert "300 jobs" in played.stdout
    assert "kill a worker" in played.stdout, "this seed breaks something"
    assert "The promise held" in played.stdout
