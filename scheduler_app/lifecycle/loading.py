"""Making the project's tasks known in processes that are neither worker nor beat.

It would break if this went through Celery's `import_modules` signal: that swallows what an import raises, and its
Django fixup runs the system checks, which load the tasks.
"""

from __future__ import annotations

import logging
from functools import lru_cache

from celery import current_app

logger = logging.getLogger("everyslot")


@lru_cache(maxsize=1)
def import_tasks() -> None:
    """Import `tasks` of every installed app and what `imports` and `include` name; then the catalog is complete.

    Raises whatever a module raises when it is imported.
    """
    for module in current_app.loader.default_modules:
        current_app.loader.import_task_module(module)
    current_app.autodiscover_tasks(force=True)


def load_tasks() -> None:
    """`import_tasks` for pages and commands that must work beside a broken module too: it is logged."""
    try:
        import_tasks()
    except Exception:
        logger.exception("the modules with tasks cannot be imported; tasks may be unknown here")
