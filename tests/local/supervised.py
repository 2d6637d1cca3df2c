"""A piece of supervised work for the tests: `python tests/local/supervised.py FACTS_FILE ENDING`.

It starts a private Redis and a daemon that leaves its session, writes what it started as JSON, then ends that way:
`return`, `raise`, `leave` (sys.exit), `wait` (for a signal) or `swallow` (where its exception is lost).
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from scheduler_app.local.services import Services
from scheduler_app.local.supervise import supervise

DAEMON = "import os, time\nif os.fork(): os._exit(0)\nos.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
CODE = 7


def wait_in_a_finalizer() -> None:
    """Whatever is raised in here is swallowed by Python."""

    class Deaf:
        def __del__(self) -> None:
            threading.Event().wait()

    Deaf()


def work(folder: Path) -> int:
    facts_file, ending = Path(sys.argv[1]), sys.argv[2]
    with Services(folder, environ={}) as services:
        services.start(["redis"])
        daemon = subprocess.Popen([sys.executable, "-c", DAEMON], stdout=subprocess.PIPE, text=True)
        assert daemon.stdout is not None
        facts = {
            "folder": str(folder),
            "inner": os.getpid(),
            "service": services.running["redis"].pid,  # type: ignore[attr-defined]
            "daemon": int(daemon.stdout.readline()),
        }
        draft = facts_file.with_suffix(".draft")
        draft.write_text(json.dumps(facts))
        draft.rename(facts_file)
        if ending == "raise":
            raise ZeroDivisionError
        if ending == "leave":
            sys.exit(CODE)
        if ending == "wait":
            threading.Event().wait()
        if ending == "swallow":
            wait_in_a_finalizer()
            threading.Event().wait()
    return CODE


if __name__ == "__main__":
    sys.exit(supervise(work))
