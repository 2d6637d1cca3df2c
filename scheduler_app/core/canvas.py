"""What follows a run: the rest of its chain and its links, worked out from signatures as plain dictionaries. Pure.

Celery's rules (docs.celeryq.dev, "Canvas"): a successor gets the result as its first positional argument unless it is
immutable; a group follows with each of its members; what is left of the chain goes on with the first successor.
Chords need a counter that no row of ours keeps, and are refused where they are entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Signature = Mapping[str, Any]
CHORD_REFUSED = "chords are not supported by durable tasks: a group in the middle of a chain makes one as well"


@dataclass(frozen=True, slots=True)
class Successor:
    """A run to make. `canvas` is what follows it in turn; `options` are Celery's call options.

    `takes_result` says that its first argument is what its predecessor returned (for an error link, its id).
    `declared` is what `declare` noted of a durable task, for a worker that does not know it.
    """

    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    canvas: dict[str, Any] | None = None
    takes_result: bool = False
    declared: dict[str, Any] | None = None


def canvas_of(
    chain: Sequence[Signature], link: Sequence[Signature], link_error: Sequence[Signature]
) -> dict[str, Any] | None:
    """The value of a run's `canvas`: None if nothing follows. `chain` is in Celery's order: next one last."""
    parts = {"chain": list(chain), "link": list(link), "link_error": list(link_error)}
    return {name: value for name, value in parts.items() if value} or None


def refuse(signatures: Sequence[Any]) -> str | None:
    """Why these cannot follow a durable task, or None: `after_success` and `after_death` can read the others."""
    return next((why for each in signatures if (why := _refuse(each))), None)


def _refuse(signature: Any) -> str | None:
    if not isinstance(signature, Mapping) or not isinstance(signature.get("task"), str):
        return f"a signature is an object that names its task; got {signature!r:.200}"
    kind = signature.get("subtask_type")
    if kind == "chord" or (signature.get("chord_size") and kind != "group"):
        return CHORD_REFUSED
    kwargs, args, options = (signature.get(name) for name in ("kwargs", "args", "options"))
    if not isinstance(kwargs or {}, Mapping) or not isinstance(options or {}, Mapping):
        return f"kwargs and options of {signature['task']} must be objects"
    if not isinstance(args or (), list | tuple):
        return f"args of {signature['task']} must be a list; got {args!r:.200}"
    inner = [each for name in ("chain", "link", "link_error") for each in _listed((options or {}).get(name))]
    if kind in ("group", "chain"):
        tasks = (kwargs or {}).get("tasks")
        if not tasks or not isinstance(tasks, list | tuple):
            return f"a {kind} needs a list of tasks"
        inner += tasks
    return refuse(inner)


def declare(signatures: Sequence[Signature], look_up: Callable[[str], dict[str, Any] | None]) -> list[Signature]:
    """The same signatures, with a note on each durable task of what its caller knows of it.

    The worker that ends the predecessor may be of yesterday and not know the task: by the note it makes a run that
    waits for a worker which does, where it would take it for an ordinary task.
    """
    return [_declare(each, look_up) for each in signatures]


def _declare(signature: Signature, look_up: Callable[[str], dict[str, Any] | None]) -> Signature:
    noted = {name: value for name, value in signature.items() if name != "durable"}
    if known := look_up(signature["task"]):
        noted["durable"] = known
    if kwargs := signature.get("kwargs") if signature.get("subtask_type") in ("group", "chain") else None:
        noted["kwargs"] = {**kwargs, "tasks": declare(kwargs["tasks"], look_up)}
    if options := signature.get("options"):
        links = {name: declare(_listed(options.get(name)), look_up) for name in ("chain", "link", "link_error")}
        noted["options"] = {**options, **{name: value for name, value in links.items() if value}}
    return noted


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
        steps = _steps(signature)
        yield from _apply(steps[0], first, [*rest, *reversed(steps[1:])])
    elif kind == "group":
        for member in signature["kwargs"]["tasks"]:
            yield from _apply(member, first, rest)
    else:
        options = dict(signature.get("options") or {})
        own = [*rest, *_listed(options.pop("chain", None))]
        args = tuple(signature.get("args") or ())
        yield Successor(
            signature["task"],
            args if signature.get("immutable") else first + args,
            dict(signature.get("kwargs") or {}),
            options,
            canvas_of(own, _listed(options.pop("link", None)), _listed(options.pop("link_error", None))),
            takes_result=not signature.get("immutable"),
            declared=signature.get("durable"),
        )


def _steps(chain: Signature) -> list[Signature]:
    """The tasks of a chain with its own links: they follow its last task, its error links each of them."""
    options = chain.get("options") or {}
    errors = _listed(options.get("link_error"))
    steps = [_linked(step, "link_error", errors) for step in chain["kwargs"]["tasks"]]
    return [*steps[:-1], _linked(steps[-1], "link", _listed(options.get("link")))]


def _linked(signature: Signature, name: str, more: list[Signature]) -> Signature:
    """The same signature with more links; a group has them on each of its members."""
    if not more:
        return signature
    if signature.get("subtask_type") == "group":
        members = [_linked(each, name, more) for each in signature["kwargs"]["tasks"]]
        return {**signature, "kwargs": {**signature["kwargs"], "tasks": members}}
    options = signature.get("options") or {}
    return {**signature, "options": {**options, name: [*_listed(options.get(name)), *more]}}


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
