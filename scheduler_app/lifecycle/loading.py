"""Making the project's tasks known in processes that are neither worker nor beat."""

from __future__ import annotations

from functools import lru_cache

from celery import current_app


@lru_cache(maxsize=1)
def load_tasks() -> None:
    """Import every module with tasks, as a worker does at its start; then the catalog is complete."""
    current_app.loader.import_default_modules()
