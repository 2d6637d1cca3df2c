"""What a test does without a service: at home it is skipped aloud, in CI it fails."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def without(need: str) -> NoReturn:
    """Skip, or fail where CI is set, for want of `need`, which says how to come by it."""
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(need)
    pytest.skip(need)
