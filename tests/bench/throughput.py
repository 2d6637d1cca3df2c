"""No-op runs with a durable record beside plain Celery tasks without results: `python -m tests.bench.throughput`.

Both go through the same broker and the same worker command with two pool processes; the messages are queued before
the worker starts, and the rate is counted from the first execution to the last. The two take turns; the figure to
quote is the median of the ratios. Needs DATABASE_URL and BROKER_URL (`make bench` gives both).
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
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prefetch", type=int, default=100)
    options = parser.parse_args(arguments)
    _setup()
    ratios = []
    for number in range(1, options.rounds + 1):
        plain = measure("plain", options.runs, options.prefetch)
        durable = measure("durable", options.runs, options.prefetch)
        ratios.append(durable / plain)
        print(f"round {number}: plain {plain:7.0f}/s   durable {durable:7.0f}/s   ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}")


def _setup() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup()
    from django.core.management import call_command

    import config  # noqa: F401  (the Celery app)

    call_command("migrate", verbosity=0)


def measure(kind: str, runs: int, prefetch: int) -> float:
    """Executions a second, from the first to the last."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times"
        environment = dict(os.environ, EVERYSLOT_BENCH_FILE=str(times), EVERYSLOT_PREFETCH=str(prefetch))
        _queue(kind, runs)
        worker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "celery",
                "-A",
                "config",
                "worker",
                "-c",
                "2",
                "-l",
                "WARNING",
                "-I",
                "tests.bench.noop_tasks",
                "-n",
                f"bench-{kind}@%h",
            ],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait(times, runs, timeout=180)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(30)
        raw = times.read_bytes()
        noted = sorted(struct.unpack(f"{len(raw) // 8}d", raw))
        return (len(noted) - 1) / (noted[-1] - noted[0])


def _queue(kind: str, runs: int) -> None:
    from tests.bench.noop_tasks import durable_noop, plain_noop

    if kind == "plain":
        with plain_noop.app.producer_pool.acquire(block=True) as producer:
            for _ in range(runs):
                plain_noop.apply_async(producer=producer)
        return
    from django.db import transaction

    from scheduler_app.broker.publisher import publisher
    from scheduler_app.core.message import Hint
    from scheduler_app.lifecycle.enqueue import new_run
    from scheduler_app.store.enqueue import insert_runs

    rows = [new_run(durable_noop.name, (), {}) for _ in range(runs)]
    with transaction.atomic():
        for start in range(0, runs, 1000):
            insert_runs(rows[start : start + 1000])
    hints = [Hint(row.id, row.task, 0, row.queue, row.priority) for row in rows]
    confirmed = sum(len(publisher().publish(hints[at : at + 2000], timeout=60)) for at in range(0, runs, 2000))
    if confirmed != runs:
        raise SystemExit(f"only {confirmed} of {runs} hints were confirmed")


def _wait(times: Path, runs: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not times.exists() or times.stat().st_size < 8 * runs:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {times.stat().st_size // 8 if times.exists() else 0} of {runs} ran in {timeout} s")
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
