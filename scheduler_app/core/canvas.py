"""What follows a run: the rest of its chain and its links, worked out from signatures as plain dictionaries. Pure.

Celery's rules (docs.celeryq.dev, "Canvas"): a successor gets the result as its first positional argument unless it is
immutable; a group follows with each of its members; what is left of the chain goes on with the first successor.
Chords need a counter that no row of ours keeps, and are refused where they are entered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Signature = Mapping[str, Any]
CHORD_REFUSED = "chords are not supported by durable tasks: a group in the middle of a chain makes one as well"


@dataclass(frozen=True, slots=True)
class Successor:
    """A run to make. `canvas` is what follows it in turn; `options` are Celery's call options.

    `takes_result` says that its first argument is what its predecessor returned (for an error link, its id).
    """

    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    canvas: dict[str, Any] | None = None
    takes_result: bool = False


def canvas_of(
    chain: Sequence[Signature], link: Sequence[Signature], link_error: Sequence[Signature]
) -> dict[str, Any] | None:
    """The value of a run's `canvas`: None if nothing follows. `chain` is in Celery's order: next one last."""
    parts = {"chain": list(chain), "link": list(link), "link_error": list(link_error)}
    return {name: value for name, value in parts.items() if value} or None


def refuse_chords(signatures: Sequence[Signature]) -> str | None:
    """Why these signatures cannot follow a durable task, or None."""
    for signature in signatures:
        kind = signature.get("subtask_type")
        if kind == "chord" or (signature.get("chord_size") and kind != "group"):
            return CHORD_REFUSED
        inner = signature.get("kwargs", {}).get("tasks") if kind in ("group", "chain") else None
        if inner and (why := refuse_chords(list(inner))):
            return why
    return None


def after_success(canvas: Mapping[str, Any], result: Any) -> list[Successor]:
    """The runs that follow a success with `result` (a decoded JSON value)."""
    found: list[Successor] = []
    for signature in canvas.get("link", ()):
        found += _apply(signature, (result,), [])
    chain = list(canvas.get("chain", ()))
    if chain:
        found += _apply(chain[-1], (result,), chain[:-1])
    return found


def after_death(canvas: Mapping[str, Any], run_id: str) -> list[Successor]:
    """The error links of a dead run; each is called with the run's id first (Celery's old-style errback)."""
    return [each for signature in canvas.get("link_error", ()) for each in _apply(signature, (run_id,), [])]


def _apply(signature: Signature, first: tuple[Any, ...], rest: list[Signature]) -> Iterator[Successor]:
    kind = signature.get("subtask_type")
    if kind == "chain":
        steps = list(signature["kwargs"]["tasks"])
        yield from _apply(steps[0], first, [*rest, *reversed(steps[1:])])
    elif kind == "group":
        for member in signature["kwargs"]["tasks"]:
            yield from _apply(member, first, rest)
    else:
        options = dict(signature.get("options") or {})
        own = [*rest, *options.pop("chain", [])]
        args = tuple(signature.get("args") or ())
        yield Successor(
            signature["task"],
            args if signature.get("immutable") else first + args,
            dict(signature.get("kwargs") or {}),
            options,
            canvas_of(own, _listed(options.pop("link", None)), _listed(options.pop("link_error", None))),
            takes_result=not signature.get("immutable"),
        )


def _listed(value: Any) -> list[Signature]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
