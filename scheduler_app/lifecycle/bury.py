"""Bury: note dead messages as DeadLetter rows. Doing it twice is a no-op, so the message may be acknowledged after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from django.db import DataError, transaction

from scheduler_app.core.letter import Letter
from scheduler_app.instrument import emit
from scheduler_app.store.bury import bury_letters, fill_letters

__all__ = ["Letter", "bury", "bury_apart"]


def bury(letters: Sequence[Letter]) -> int:
    """Note these dead messages; how many were new. A dead run has its letter already: it is completed."""
    with transaction.atomic():
        fill_letters([letter for letter in letters if letter.run_id is not None])
        new = bury_letters(letters)
    emit("letters.buried", new=new, seen=len(letters))
    return new


def bury_apart(letters: Sequence[Letter]) -> int:
    """The same one by one, for a batch of which PostgreSQL refused a value: that letter is noted without its text."""
    return sum(_bury_one(letter) for letter in letters)


def _bury_one(letter: Letter) -> int:
    try:
        return bury([letter])
    except DataError:
        return bury([replace(letter, headers="{}", body="")])
