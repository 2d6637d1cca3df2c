"""A storage folder of its own for every test of a task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings

from tests.tasks.web import Web, serving


@pytest.fixture(autouse=True)
def media(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "media"
    folder.mkdir()
    with override_settings(MEDIA_ROOT=folder):
        yield folder


@pytest.fixture
def web() -> Iterator[Web]:
    """A server on the loopback that may be called."""
    with serving() as web, override_settings(EVERYSLOT_HTTP_ALLOW=[f"127.0.0.1:{web.port}"]):
        yield web
