"""Discard: decide that a dead letter stays dead, with the reason and who said so.

Guaranteed: compare-and-set, so of two people who decide about a letter at once one has decided. The run stays dead and
on record, and is left out of what is sent back by filter; by its id it can still be sent back.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_app.core.errors import InvalidDefinition
from scheduler_app.core.text import storable
from scheduler_app.instrument import emit
from scheduler_app.store.decide import discard_letters


def discard(letter_ids: Sequence[int], by: str, reason: str) -> list[int]:
    """Discard these letters; the ids of those that were open. Raises InvalidDefinition without a reason."""
    reason = storable(reason.strip())[:500]
    if not reason:
        raise InvalidDefinition("reason", "must say why nobody is to work on this again")
    done = discard_letters(letter_ids, by[:200], reason)
    emit("letters.discarded", letters=done, by=by)
    return done
