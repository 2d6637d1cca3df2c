"""A program that stands for ffmpeg: it says what ffmpeg says, and copies its input."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = """#!{python}
import os, sys, time
folder = {folder!r}
arguments = sys.argv[1:]
source = arguments[arguments.index("-i") + 1].removeprefix("file:")
if "-progress" not in arguments:
    if os.path.exists(folder + "/no-video"):
        sys.exit("Invalid data found when processing input")
    sys.stderr.write("  Duration: 00:00:10.00, start: 0\\n  Stream #0:0: Video: h264\\n")
    sys.exit("At least one output file must be specified")
with open(folder + "/calls", "a") as calls:
    calls.write(str(os.getpid()) + "\\n")
print("out_time_us=4000000", flush=True)
while os.path.exists(folder + "/keep-going"):
    print("out_time_us=5000000", flush=True)
    time.sleep(0.01)
if os.path.exists(folder + "/fail"):
    sys.exit("Conversion failed!")
with open(arguments[-1].removeprefix("file:"), "wb") as out, open(source, "rb") as original:
    out.write(original.read())
print("progress=end", flush=True)
"""


@dataclass
class FfmpegDouble:
    folder: Path

    def pids(self) -> list[int]:
        calls = self.folder / "calls"
        return [int(line) for line in calls.read_text().split()] if calls.exists() else []

    def transcodings(self) -> int:
        return len(self.pids())

    def says(self, word: str) -> None:
        """`no-video`, `fail` or `keep-going`."""
        (self.folder / word).touch()


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FfmpegDouble:
    """Put it on the PATH as `ffmpeg`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "ffmpeg"
    program.write_text(SOURCE.format(python=sys.executable, folder=str(folder)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return FfmpegDouble(folder)
