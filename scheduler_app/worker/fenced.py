"""`current_run().fenced(queryset)`: the writes of a queryset or manager, each inside the run's fence."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

WRITES: Final = (
    "update", "delete", "create", "get_or_create", "update_or_create", "bulk_create", "bulk_update",
)  # fmt: skip


class Fenced:
    """Has Django's `WRITES` and nothing else: what only reads needs no fence. Each raises LostGround, with nothing
    written, in an attempt that is no longer the current one."""

    def __init__(self, queryset: Any, fence: Callable[[], AbstractContextManager[None]]) -> None:
        self._queryset = queryset
        self._fence = fence

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in WRITES:
            raise AttributeError(f"fenced() has {', '.join(WRITES)}, not {name}: filter and read before it")
        write = getattr(self._queryset, name)

        def fenced(*args: Any, **kwargs: Any) -> Any:
            with self._fence():
                return write(*args, **kwargs)

        return fenced
