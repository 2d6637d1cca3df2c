"""The pool that a worker really runs on, which `--pool` decides and no setting tells: judged as the worker starts."""

from __future__ import annotations

from celery.concurrency import ALIASES
from celery.utils.log import get_logger

from scheduler_app.core.pools import objection

logger = get_logger(__name__)


def judge_pool(pool: object) -> None:
    """Warn of a pool that keeps less than the promise; raises SystemExit with one line for one that breaks it."""
    against = objection(_path(type(pool)))
    if against is None:
        return
    if against.forbidden:
        raise SystemExit(f"this worker does not start: {against}")
    logger.warning("%s", against)


def _path(pool: type) -> str:
    """The path of Celery's pool that this one is or is made of, else its own."""
    paths = [f"{each.__module__}:{each.__qualname__}" for each in pool.__mro__]
    return next((path for path in paths if path in ALIASES.values()), paths[0])
