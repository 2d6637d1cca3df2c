"""Loading the project's tasks where no worker does."""

from __future__ import annotations

import pytest

from scheduler_app.lifecycle import catalog, loading


def test_the_projects_tasks_are_known_once_loaded() -> None:
    loading.load_tasks()
    assert catalog.find("tasks.examples.ok") is not None


def test_a_broken_module_is_logged_and_pages_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ModuleNotFoundError("no module named 'gone'")

    monkeypatch.setattr(loading, "import_tasks", broken)
    loading.load_tasks()
    assert "tasks may be unknown here" in caplog.text
