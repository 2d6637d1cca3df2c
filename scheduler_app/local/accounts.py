"""Which operating system user a service runs as, and folders that this user can reach.

PostgreSQL refuses to run as root, so root hands it to `postgres`, else to `nobody`.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from scheduler_app.local.processes import Account

CANDIDATES = ("postgres", "nobody")


def unprivileged() -> Account | None:
    """None when we are not root: then services run as we do."""
    if os.geteuid() != 0:
        return None
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    return None


def owned_folder(path: Path, account: Account | None) -> Path:
    """Make the folder, private to the account."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    if account is not None:
        os.chown(path, account.uid, account.gid)
    return path


def can_reach(path: Path, account: Account | None) -> bool:
    """Whether the account may pass through every folder above `path` (which need not exist yet)."""
    if account is None:
        return True
    return all(_may_enter(folder, account) for folder in path.resolve().parents if folder.exists())


def _may_enter(folder: Path, account: Account) -> bool:
    status = folder.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == account.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)
