"""The transport's tables: the one place where they are stated. The migration and the tests run these statements.

What must hold: the message table is logged (never UNLOGGED), so a committed publish survives a crash of the server;
the index `ready` holds exactly the rows that may be read now, in reading order, so that neither delivered nor dying
messages are walked over. The message table lives on churn: vacuum runs early and without pauses.
"""

from __future__ import annotations

from typing import LiteralString

EXCHANGE = """
CREATE TABLE everyslot_transport_exchange (
    name text PRIMARY KEY,
    type text NOT NULL CHECK (type IN ('direct', 'topic', 'fanout')),
    durable boolean NOT NULL DEFAULT true,
    auto_delete boolean NOT NULL DEFAULT false,
    arguments jsonb NOT NULL DEFAULT '{}'
)
"""

# The generated columns read RabbitMQ's queue arguments; times are milliseconds as there. -1 means no delivery limit.
QUEUE = """
CREATE TABLE everyslot_transport_queue (
    name text PRIMARY KEY,
    durable boolean NOT NULL DEFAULT true,
    auto_delete boolean NOT NULL DEFAULT false,
    arguments jsonb NOT NULL DEFAULT '{}',
    was_consumed boolean NOT NULL DEFAULT false,
    last_used_at timestamptz NOT NULL DEFAULT now(),
    delivery_limit integer GENERATED ALWAYS AS (
        CASE WHEN (arguments ->> 'x-delivery-limit')::integer < 0 THEN 2147483647
             ELSE (arguments ->> 'x-delivery-limit')::integer END) STORED,
    dead_letter_exchange text GENERATED ALWAYS AS (arguments ->> 'x-dead-letter-exchange') STORED,
    dead_letter_routing_key text GENERATED ALWAYS AS (arguments ->> 'x-dead-letter-routing-key') STORED,
    message_ttl bigint GENERATED ALWAYS AS ((arguments ->> 'x-message-ttl')::numeric::bigint) STORED,
    expires bigint GENERATED ALWAYS AS ((arguments ->> 'x-expires')::numeric::bigint) STORED
)
"""

# `pattern` is the routing key of a topic binding as a regular expression (routing.py).
BINDING = """
CREATE TABLE everyslot_transport_binding (
    exchange text NOT NULL,
    routing_key text NOT NULL,
    queue text NOT NULL REFERENCES everyslot_transport_queue (name) ON DELETE CASCADE,
    pattern text NOT NULL,
    PRIMARY KEY (exchange, routing_key, queue)
)
"""

# A holder is a connection that consumes: its one row is the lease of every message that it holds. While `locked` its
# session also holds an advisory lock, by which the others see at once that the session has ended.
HOLDER = """
CREATE TABLE everyslot_transport_holder (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queues text[] NOT NULL DEFAULT '{}',
    alive_until timestamptz NOT NULL,
    locked boolean NOT NULL DEFAULT true
) WITH (fillfactor = 50)
"""

MESSAGE = """
CREATE TABLE everyslot_transport_message (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    exchange text NOT NULL,
    routing_key text NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    deliveries integer NOT NULL DEFAULT 0,
    holder bigint,
    dying text CHECK (dying IN ('rejected', 'delivery_limit', 'expired')),
    published_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    deaths jsonb,
    payload text NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_threshold = 1000,
    toast.autovacuum_vacuum_scale_factor = 0.01,
    toast.autovacuum_vacuum_cost_delay = 0
)
"""

READY = """
CREATE INDEX everyslot_transport_message_ready
    ON everyslot_transport_message (queue, priority DESC, id) WHERE holder IS NULL AND dying IS NULL
"""
HELD = """
CREATE INDEX everyslot_transport_message_held
    ON everyslot_transport_message (holder) WHERE holder IS NOT NULL
"""
DYING = """
CREATE INDEX everyslot_transport_message_dying
    ON everyslot_transport_message (id) WHERE dying IS NOT NULL
"""
EXPIRING = """
CREATE INDEX everyslot_transport_message_expiring
    ON everyslot_transport_message (expires_at) WHERE expires_at IS NOT NULL
"""

# One row: whoever locks it and moves it on sweeps for everyone.
SWEEP = "CREATE TABLE everyslot_transport_sweep (swept_at timestamptz NOT NULL) WITH (fillfactor = 50)"
FIRST_SWEEP = "INSERT INTO everyslot_transport_sweep VALUES ('-infinity')"

CREATE: tuple[LiteralString, ...] = (
    EXCHANGE,
    QUEUE,
    BINDING,
    HOLDER,
    MESSAGE,
    READY,
    HELD,
    DYING,
    EXPIRING,
    SWEEP,
    FIRST_SWEEP,
)
DROP: tuple[LiteralString, ...] = (
    "DROP TABLE everyslot_transport_sweep",
    "DROP TABLE everyslot_transport_message",
    "DROP TABLE everyslot_transport_holder",
    "DROP TABLE everyslot_transport_binding",
    "DROP TABLE everyslot_transport_queue",
    "DROP TABLE everyslot_transport_exchange",
)
