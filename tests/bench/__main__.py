"""`make bench`: every bench in turn, or the named ones. Figures of one run on one machine: quote ratios, not rates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from tests.bench import latency, schedule, throughput

BENCHES: Mapping[str, Callable[[list[str]], None]] = {
    "schedule": schedule.main,
    "latency": latency.main,
    "throughput": throughput.main,
}


def main(names: list[str]) -> int:
    """0, or 2 for a name that is none."""
    if unknown := [name for name in names if name not in BENCHES]:
        print(f"no such bench: {', '.join(unknown)}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in names or list(BENCHES):
        print(f"-- {name}", flush=True)
        BENCHES[name]([])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
