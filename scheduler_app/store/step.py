"""Finished steps of runs."""

from __future__ import annotations

from uuid import UUID

from scheduler_app.store.statements import load, rows

_SQL = load("step.sql")


def try_lock_step(run_id: UUID, name: str) -> bool:
    """Take the step until the transaction ends; False while another transaction has it."""
    return bool(rows(_SQL["try_lock_step"], {"run": run_id, "name": name})[0][0])


def done_step(run_id: UUID, name: str) -> str | None:
    """The result of the step as JSON text, or None if the step is not done."""
    found = rows(_SQL["done_step"], {"run": run_id, "name": name})
    return found[0][0] if found else None


def note_step(run_id: UUID, name: str, result: str) -> None:
    """Write the result (JSON text) of the step."""
    rows(_SQL["note_step"], {"run": run_id, "name": name, "result": result})
