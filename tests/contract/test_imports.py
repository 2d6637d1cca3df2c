"""What may import what, from the ground up, read from the source: anything else fails here.

The table is the layout's. What is excepted is written down below it, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APP = "scheduler_app"
GROUND = {"core", "conf", "clock", "instrument", "models", "store", "broker", "lifecycle"}
DRIVERS = {"beat", "worker", "admin", "management", "local", "checks", "testing"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "conf": {"core"},
    "clock": {"core"},
    "instrument": {"core"},
    "models": {"core"},
    "store": {"core", "models"},
    "broker": {"core", "conf", "instrument"},
    "transport": set(),
    "lifecycle": GROUND - {"lifecycle"},
    "telemetry": {"core", "conf", "instrument"},
    "apps": {"checks", "telemetry"},
    "migrations": {"models"},
    "__init__": set(),
    **dict.fromkeys(DRIVERS, GROUND),
}
EXCEPTIONS = {
    # `from scheduler_app import durable_task, current_run`: both are loaded at their first use.
    (f"{APP}/__init__.py", f"{APP}.worker.task"),
    (f"{APP}/__init__.py", f"{APP}.worker.context"),
}
PLAYS_A_USER = f"{APP}/local/demo/scene.py"  # whose code calls tasks inside its own transactions
CONFIG_MAY_IMPORT = {"scheduler_app.transport", "scheduler_app.broker.topology"}  # both work before Django is set up
IMPURE = {"django", "celery", "psycopg", "redis", "requests", "time", "random", "os", "socket", "threading", "asyncio"}


def sources(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a file imports, wherever in it; names of a `from` are appended."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def room_of(name: str) -> str:
    """The room of ours that a dotted name belongs to: `scheduler_app.core.plan.plan` is in `core`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def is_ours(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] == APP


def room_of_file(path: Path) -> str:
    return path.relative_to(ROOT / APP).with_suffix("").parts[0]


def faults(path: Path) -> Iterator[str]:
    room = room_of_file(path)
    if room not in MAY_IMPORT:
        yield f"{shown(path)}: {room} is a new room; say in this test what it may import"
        return
    for line, name in imports(path):
        if not is_ours(name) or room_of(name) in MAY_IMPORT[room] | {room}:
            continue
        if (shown(path), name) in EXCEPTIONS or (shown(path), name.rpartition(".")[0]) in EXCEPTIONS:
            continue
        yield f"{shown(path)}:{line}: {room} imports {name}"


def test_every_room_imports_only_what_lies_below_it() -> None:
    assert [fault for path in sources(APP) for fault in faults(path)] == []


def test_the_exceptions_are_still_needed() -> None:
    found = {(shown(p), name.rpartition(".")[0]) for p in sources(APP) for _, name in imports(p) if is_ours(name)}
    assert found >= EXCEPTIONS


def test_the_core_is_pure() -> None:
    impure = [
        f"{shown(path)}:{line}: {name}"
        for path in sources(f"{APP}/core")
        for line, name in imports(path)
        if name.split(".")[0] in IMPURE
    ]
    assert impure == []


def test_tasks_use_public_names_only() -> None:
    public = {f"{APP}.durable_task", f"{APP}.current_run"}
    errors = f"{APP}.core.errors"
    inside = [
        f"{shown(path)}:{line}: {name}"
        for path in sources("tasks")
        for line, name in imports(path)
        if is_ours(name) and name not in public and not name.startswith(errors)
    ]
    assert inside == []


def test_the_project_uses_what_works_before_django_is_set_up() -> None:
    inside = [
        f"{shown(path)}:{line}: {name}"
        for path in sources("config")
        for line, name in imports(path)
        if is_ours(name) and not any(name.startswith(allowed) for allowed in CONFIG_MAY_IMPORT)
    ]
    assert inside == []


def test_nothing_of_the_package_imports_the_project_or_the_tasks() -> None:
    inside = [
        f"{shown(path)}:{line}: {name}"
        for path in sources(APP)
        for line, name in imports(path)
        if name.split(".")[0] in ("tasks", "tests")
        or (name.split(".")[0] == "config" and room_of_file(path) != "local")
    ]
    assert inside == []


def test_transactions_are_opened_in_lifecycle_and_transport_only() -> None:
    opened = [
        f"{shown(path)}:{node.lineno}"
        for path in sources(APP)
        if room_of_file(path) not in ("lifecycle", "transport", "migrations") and shown(path) != PLAYS_A_USER
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute | ast.Name)
        and (node.attr if isinstance(node, ast.Attribute) else node.id) == "atomic"
    ]
    assert opened == []


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("import scheduler_app.beat.scheduler", "scheduler_app.beat.scheduler"),
        ("from scheduler_app.beat import scheduler", "scheduler_app.beat.scheduler"),
        ("from ..beat import scheduler", "scheduler_app.beat.scheduler"),
        ("def late():\n    from scheduler_app.beat.scheduler import X", "scheduler_app.beat.scheduler.X"),
    ],
)
def test_every_way_to_import_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, wanted: str) -> None:
    path = tmp_path / APP / "worker" / "late.py"
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    assert [name for _, name in imports(path)] == [wanted]
    assert len(list(faults(path))) == 1
