"""ffmpeg as a child process: bounded in what it may read, watched while it works, gone when we are."""

from __future__ import annotations

import ctypes
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Protocol

from scheduler_app.core.errors import GiveUp

# Containers only: a playlist could name other files of this machine, or addresses (ffmpeg manual, "hls", "concat").
_READ = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,flv,mpeg,mpegts,ogg,asf"
_ONLY_FILES = ["-protocol_whitelist", "file,pipe", "-format_whitelist", _READ]
LOOK_SECONDS = 60
STOP_SECONDS = 5
SAID = 1000  # characters of ffmpeg's complaint that are kept
_DURATION = re.compile(r"Duration: (\d+):(\d\d):(\d\d(?:\.\d+)?)")


class Watched(Protocol):
    """What is told about the work and asked whether to go on."""

    def progress(self, percent: float, message: str = "") -> None: ...
    def check(self) -> None: ...


class FfmpegFailed(Exception):
    """ffmpeg died; the run is tried again."""


def find() -> str:
    """The program's path; raises GiveUp with what would mend it."""
    program = shutil.which("ffmpeg")
    if program is None:
        raise GiveUp("ffmpeg is not installed on this worker (Debian: apt-get install ffmpeg)")
    return program


def length(program: str, source: Path) -> float | None:
    """Seconds of the video, or None if it does not say; raises GiveUp for a file that is no video."""
    argv = [program, "-hide_banner", "-nostdin", *_ONLY_FILES, "-i", f"file:{source}"]
    looked = subprocess.run(argv, capture_output=True, timeout=LOOK_SECONDS, check=False)
    said = looked.stderr.decode("utf-8", "replace")
    if "Video:" not in said:
        raise GiveUp(f"{source.name} is not a video that can be read: {said.strip()[-SAID:]}")
    found = _DURATION.search(said)
    return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3]) if found else None


def transcode(program: str, source: Path, target: Path, height: int, seconds: float | None, run: Watched) -> None:
    """Write `target`; raises what `run.check()` raises (ffmpeg has stopped then), GiveUp or FfmpegFailed."""
    argv = [program, "-hide_banner", "-nostdin", "-nostats", "-loglevel", "error", "-y", *_ONLY_FILES]
    argv += ["-i", f"file:{source}", "-map", "0:v:0", "-map", "0:a:0?", "-vf", f"scale=-2:'min({height // 2 * 2},ih)'"]
    argv += ["-c:v", "libx264", "-preset", "medium", "-crf", "23", "-pix_fmt", "yuv420p", "-c:a", "aac"]
    argv += ["-movflags", "+faststart", "-progress", "pipe:1", "-f", "mp4", f"file:{target}"]
    with tempfile.TemporaryFile() as complaint, _started(argv, complaint) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                run.check()
                _show(line, seconds, run)
            code = process.wait()
        finally:
            _stop(process)
        if code < 0:
            raise FfmpegFailed(f"ffmpeg was ended by signal {-code}")
        if code:
            raise GiveUp(f"ffmpeg cannot transcode {source.name}: {_last(complaint)}")


def _show(line: str, seconds: float | None, run: Watched) -> None:
    name, _, value = line.strip().partition("=")
    if name == "out_time_us" and seconds and value.lstrip("-").isdigit():
        done = max(0.0, int(value) / 1e6)
        run.progress(min(99.0, 100 * done / seconds), f"{done:.0f} of {seconds:.0f} s")


def _started(argv: list[str], complaint: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=complaint,
        text=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - a pool's child has one thread
    )


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    """A worker that is killed takes its ffmpeg along (prctl(2), PR_SET_PDEATHSIG)."""
    if _LIBC is not None:
        _LIBC.prctl(1, signal.SIGKILL)


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last(complaint: IO[bytes]) -> str:
    end = complaint.seek(0, 2)
    complaint.seek(max(0, end - SAID))
    return complaint.read().decode("utf-8", "replace").strip()
