"""Install a service with apt-get, without letting the package start it.

Debian's packages start their service when installed unless /usr/sbin/policy-rc.d says no (exit 101, see
invoke-rc.d(8)). Ours is there only while apt-get runs, and only if nobody had put one there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")
TIMEOUT = 900.0


def may_install() -> bool:
    """Whether we are root on a system with apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Sequence[str]) -> bool:
    """Install them; False (with apt's last words on stderr) if that failed."""
    print(f"installing {' '.join(packages)} with apt-get", flush=True)
    with _no_service_starts():
        return _apt("update") and _apt("install", "--yes", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> bool:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    argv = ["apt-get", "--quiet", "--option", "DPkg::Lock::Timeout=120", *arguments]
    try:
        result = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(argv)} took more than {TIMEOUT:.0f} s", file=sys.stderr)
        return False
    if result.returncode != 0:
        print("\n".join(result.stderr.splitlines()[-10:]), file=sys.stderr)
    return result.returncode == 0


@contextmanager
def _no_service_starts() -> Iterator[None]:
    try:
        descriptor = os.open(POLICY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    except FileExistsError:
        yield
        return
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nexit 101\n")
        yield
    finally:
        POLICY.unlink(missing_ok=True)
