"""Together: a transactional task's database work and its run's success commit in one transaction, or neither does.

The finish is written by the pool child, last, under the attempt's fence: an attempt that lost its lease finds no row
and rolls its work back. No lock is held while the task works, so a frozen attempt never blocks the reaper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import transaction

from scheduler_app.core.outcome import Ending, Way
from scheduler_app.core.payload import encode_result
from scheduler_app.core.states import Status
from scheduler_app.lifecycle.claim import finish_inside


def commit_together(facts: dict[str, Any], work: Callable[[], Any]) -> Any:
    """Run `work` and finish its run in one transaction; raises LostGround (and rolls back) without the fence."""
    with transaction.atomic():
        result = work()
        ending = Ending(Way.RETURNED, Status.SUCCEEDED, result=encode_result(result))
        finish_inside(UUID(facts["id"]), facts["attempt"], UUID(facts["worker"]), ending)
    return result
