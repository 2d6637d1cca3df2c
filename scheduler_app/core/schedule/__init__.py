"""The schedule engine: text in, slots out, with no clock of its own.

`parse` gives the value to keep in a hot loop, `next_fires` and `validate` are the plain functions over it,
`explain` says it in English.
"""

from ..errors import InvalidSchedule
from .base import Kind, Schedule
from .explain import explain
from .parsing import next_fires, parse, validate
from .zones import Fold, Gap

__all__ = ["Fold", "Gap", "InvalidSchedule", "Kind", "Schedule", "explain", "next_fires", "parse", "validate"]
