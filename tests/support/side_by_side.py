"""A pytest plugin: each of the test processes side by side gets its own virtual host and its own Redis database.

It must be imported before Django's settings are (`-p tests.support.side_by_side`), since they read the environment.
The virtual hosts are those of scheduler_app/local/rabbitmq.py; pytest-django gives each process its own database.
"""

from __future__ import annotations

import os

from scheduler_app.local.rabbitmq import VHOSTS

_process = os.environ.get("PYTEST_XDIST_WORKER", "")
if _process in VHOSTS:
    os.environ["BROKER_URL"] = os.environ["BROKER_URL"].rstrip("/") + f"/{_process}"
    redis = os.environ.get("REDIS_URL", "")
    if redis:
        os.environ["REDIS_URL"] = (
            f"{redis.rpartition('/')[0] if redis.count('/') > 2 else redis}/{VHOSTS.index(_process)}"
        )
