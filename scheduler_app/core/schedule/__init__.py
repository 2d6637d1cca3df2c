"""The schedule engine: text in, slots out, with no clock of its own.

`parse` gives the value to keep in a hot loop, `next_fires` and `validate` are the plain functions over it.
"""

from ..errors import InvalidSchedule
from .base import Kind, Schedule
from .parsing import next_fires, parse, validate
from .zones import Fold, Gap

__all__ = ["Fold", "Gap", "InvalidSchedule", "Kind", "Schedule", "next_fires", "parse", "validate"]
