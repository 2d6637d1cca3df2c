"""Everyslot: every slot gets its run, and running twice does no harm.

For task authors: `from scheduler_app import durable_task, current_run`. Both are loaded at first use, so that this
package can be imported before Django is set up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler_app.worker.context import current_run
    from scheduler_app.worker.task import durable_task

__all__ = ["current_run", "durable_task"]


def __getattr__(name: str) -> Any:
    if name == "durable_task":
        from scheduler_app.worker.task import durable_task

        return durable_task
    if name == "current_run":
        from scheduler_app.worker.context import current_run

        return current_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
