"""The durable tasks this process knows, by name. Definitions are checked against them."""

from __future__ import annotations

from scheduler_app.core.options import TaskOptions

_known: dict[str, TaskOptions] = {}


def register(options: TaskOptions) -> None:
    """Make a task known. Registering a name again replaces it (modules may be reloaded)."""
    _known[options.name] = options


def find(name: str) -> TaskOptions | None:
    """The options of the task, or None if this process does not know it."""
    return _known.get(name)


def all_tasks() -> list[TaskOptions]:
    """Every known durable task, by name."""
    return sorted(_known.values(), key=lambda options: options.name)
