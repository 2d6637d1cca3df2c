"""The tables: one truth, logged, and an index that serves the read however large the backlog is."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db import migrations

from scheduler_app.transport import schema, statements
from scheduler_app.transport.migrations import __path__ as migrations_path

Database = psycopg.Connection[Any]


def test_the_migration_runs_the_statements_of_the_schema() -> None:
    import importlib

    module = importlib.import_module("scheduler_app.transport.migrations.0001_initial")
    (operation,) = module.Migration.operations
    assert isinstance(operation, migrations.RunSQL)
    assert (operation.sql, operation.reverse_sql) == (list(schema.CREATE), list(schema.DROP))
    assert list(migrations_path)


def test_the_schema_can_be_taken_back(database: Database) -> None:
    with database.transaction(force_rollback=True):
        for statement in schema.DROP:
            database.execute(statement)
        left = database.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'everyslot_transport%'").fetchone()
        assert left == (0,)


def test_no_table_of_the_transport_is_unlogged(database: Database) -> None:
    kinds = database.execute(
        "SELECT DISTINCT relpersistence FROM pg_class WHERE relname LIKE 'everyslot_transport%' AND relkind = 'r'"
    ).fetchall()
    assert kinds == [("p",)]


def test_a_read_walks_the_ready_index_in_order_and_stops(database: Database) -> None:
    database.execute(
        "INSERT INTO everyslot_transport_message (queue, exchange, routing_key, holder, payload)"
        " SELECT 'work', '', 'work', CASE WHEN n <= 5000 THEN 1 END, '{}' FROM generate_series(1, 20000) n"
    )
    database.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off")
    parameters = {"queues": ["work"], "count": 10, "acks": [], "holder": 2}
    plan = "\n".join(
        line for (line,) in database.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {statements.READ}".encode(), parameters)
    )
    (walk,) = [line for line in plan.splitlines() if "everyslot_transport_message_ready" in line]
    assert "Index" in walk
    assert "rows=10 loops=1" in walk.split("(actual")[1]
    assert "Seq Scan" not in plan
