"""How soon an idle worker starts a single `.delay()`: `python -m tests.bench.latency` (needs the services' URLs).

From before the call to the task's first line, both on this machine's clock; the median of many single calls.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100)
    calls = parser.parse_args(arguments).calls
    from tests.bench.throughput import _setup

    _setup()
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times"
        os.environ["EVERYSLOT_BENCH_FILE"] = str(times)
        command = ["celery", "-A", "config", "worker", "-c", "2", "-l", "WARNING", "-I", "tests.bench.noop_tasks"]
        worker = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            for kind in ("durable", "plain"):
                waits = _waits(kind, times, calls)
                ordered = sorted(waits)
                print(
                    f"{kind}: median {statistics.median(waits) * 1000:.1f} ms, "
                    f"p90 {ordered[int(0.9 * len(ordered))] * 1000:.1f} ms over {calls} calls",
                    flush=True,
                )
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(30)


def _waits(kind: str, times: Path, calls: int) -> list[float]:
    from tests.bench.noop_tasks import durable_noop, plain_noop

    task = durable_noop if kind == "durable" else plain_noop
    waits = []
    for number in range(calls + 5):
        with times.open("wb"):  # emptied, not replaced: the worker keeps its descriptor
            pass
        began = time.time()
        task.delay()
        while times.stat().st_size < 8:
            if time.time() - began > 60:
                raise SystemExit("the worker did not start the call within 60 s")
            time.sleep(0.0005)
        if number >= 5:  # the first calls also start connections
            waits.append(struct.unpack("d", times.read_bytes()[:8])[0] - began)
        time.sleep(0.02)
    return waits


if __name__ == "__main__":
    main(sys.argv[1:])
