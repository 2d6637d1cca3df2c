"""Named SQL: each `.sql` file in this folder holds statements as a name line, a one-sentence contract, and the text.

    -- name: claim_runs
    -- Takes the named runs for one worker; a run that is not queued, due and at the named attempt is left out.
    UPDATE …

Statements are set-based and take arrays. They run on Django's connection of the calling thread; transactions are
opened in `lifecycle` only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.db import connection
from psycopg import Cursor

HERE = Path(__file__).parent
_HEAD = re.compile(r"^-- name: (\w+)\n((?:-- .*\n)+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    contract: str
    sql: str


@lru_cache
def load(filename: str) -> Mapping[str, Statement]:
    """All statements of one file, by name."""
    text = (HERE / filename).read_text(encoding="utf-8")
    heads = list(_HEAD.finditer(text))
    found: dict[str, Statement] = {}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        sql = text[head.end() : following.start() if following else None].strip().rstrip(";")
        contract = " ".join(line.removeprefix("-- ") for line in head[2].splitlines())
        if head[1] in found or not sql:
            raise ValueError(f"{filename}: statement {head[1]} is empty or named twice")
        found[head[1]] = Statement(head[1], contract, sql)
    return found


def rows(statement: Statement, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """Run a statement and return its rows (none for a statement that returns nothing)."""
    with connection.cursor() as cursor:
        cursor.execute(statement.sql, dict(params or {}))
        return cursor.fetchall() if cursor.description else []


def hot_rows(statement: Statement, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The same for the statements of every run: bound and prepared by the server, which plans them once a session.

    Planning is most of what a claim or a finish of a few rows costs. Behind a transaction pooler, where a session is
    not ours to keep, nothing is prepared.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, Cursor(connection.connection) as cursor:
        cursor.execute(statement.sql, params, prepare=_prepares())
        return cursor.fetchall() if cursor.description else []


def _prepares() -> bool:
    return not connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS", False)
