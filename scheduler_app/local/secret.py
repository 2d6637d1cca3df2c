"""Passwords of private services: other users of this machine can reach loopback too."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from scheduler_app.local.processes import Account


def password() -> str:
    """A new one, made of characters that need no quoting in a URL."""
    return secrets.token_hex(16)


def private_file(path: Path, text: str, account: Account | None = None) -> Path:
    """Write a file that only its owner can read."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    if account is not None:
        os.chown(path, account.uid, account.gid)
    return path
