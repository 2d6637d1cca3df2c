"""Statements about exchanges, queues, bindings and holders (messages are in statements.py)."""

from __future__ import annotations

from typing import LiteralString

# An exchange exists afterwards; the answer is the type that it has.
DECLARE_EXCHANGE: LiteralString = """
WITH created AS (
    INSERT INTO everyslot_transport_exchange (name, type, durable, auto_delete, arguments)
    VALUES (%(name)s, %(type)s, %(durable)s, %(auto_delete)s, %(arguments)s::jsonb)
    ON CONFLICT (name) DO NOTHING RETURNING type
)
SELECT type FROM created UNION ALL SELECT type FROM everyslot_transport_exchange WHERE name = %(name)s
"""

FIND_EXCHANGE: LiteralString = "SELECT type FROM everyslot_transport_exchange WHERE name = %(name)s"

DELETE_EXCHANGE: LiteralString = """
WITH unbound AS (DELETE FROM everyslot_transport_binding WHERE exchange = %(name)s)
DELETE FROM everyslot_transport_exchange WHERE name = %(name)s
"""

# A queue exists afterwards. Declaring it again adds or changes arguments and never takes one away, so that a
# publisher who knows only the name cannot take a queue's dead-letter exchange.
DECLARE_QUEUE: LiteralString = """
INSERT INTO everyslot_transport_queue AS q (name, durable, auto_delete, arguments)
VALUES (%(name)s, %(durable)s, %(auto_delete)s, %(arguments)s::jsonb)
ON CONFLICT (name) DO UPDATE SET arguments = q.arguments || excluded.arguments, last_used_at = now()
 WHERE q.arguments <> q.arguments || excluded.arguments OR q.expires IS NOT NULL
"""

FIND_QUEUE: LiteralString = "SELECT 1 FROM everyslot_transport_queue WHERE name = %(name)s"

# Ready messages, counted up to `bound`, and live consumers.
COUNT_QUEUE: LiteralString = """
SELECT (SELECT count(*) FROM (
            SELECT FROM everyslot_transport_message
             WHERE queue = %(name)s AND holder IS NULL AND dying IS NULL LIMIT %(bound)s) counted),
       (SELECT count(*) FROM everyslot_transport_holder WHERE %(name)s = ANY (queues) AND alive_until > now())
"""

BIND: LiteralString = """
INSERT INTO everyslot_transport_binding (exchange, routing_key, queue, pattern)
VALUES (%(exchange)s, %(routing_key)s, %(queue)s, %(pattern)s) ON CONFLICT DO NOTHING
"""

UNBIND: LiteralString = """
DELETE FROM everyslot_transport_binding
 WHERE exchange = %(exchange)s AND routing_key = %(routing_key)s AND queue = %(queue)s
"""

BINDINGS: LiteralString = "SELECT queue, exchange, routing_key FROM everyslot_transport_binding ORDER BY 2, 3, 1"

# Ready messages leave; delivered ones stay with their consumers.
PURGE: LiteralString = """
DELETE FROM everyslot_transport_message WHERE queue = %(name)s AND holder IS NULL AND dying IS NULL
"""

DELETE_QUEUE: LiteralString = "DELETE FROM everyslot_transport_queue WHERE name = %(name)s"

DELETE_MESSAGES: LiteralString = "DELETE FROM everyslot_transport_message WHERE queue = ANY (%(names)b::text[])"

# The advisory locks of sessions that consume: a class of our own, and the holder's number (pg_locks shows both).
_LOCK_CLASS: LiteralString = "1163088976"
_LOCK_KEY: LiteralString = "mod(id, 2147483647)::integer"
_LOCKS: LiteralString = (
    "SELECT l.objid::bigint FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2"
    " AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"
    " AND l.classid = " + _LOCK_CLASS
)

# A connection begins to consume: its row carries the lease (seconds) of all that it will hold. Only queues that may
# leave note when they were used; the others would only be written by every worker at once. The lock is taken before
# the row can be seen.
HOLD: LiteralString = (
    """
WITH used AS (
    UPDATE everyslot_transport_queue SET was_consumed = true, last_used_at = now()
     WHERE name = ANY (%(queues)b::text[]) AND (auto_delete OR expires IS NOT NULL)
)
INSERT INTO everyslot_transport_holder (queues, alive_until)
VALUES (%(queues)b::text[], now() + %(lease)s * interval '1 second')
RETURNING id, pg_try_advisory_lock("""
    + f"{_LOCK_CLASS}, {_LOCK_KEY})"
)

# The session holds nothing any more, but lives on.
UNLOCK: LiteralString = (
    f"SELECT pg_advisory_unlock({_LOCK_CLASS}, {_LOCK_KEY}) FROM (SELECT %(holder)s::bigint) AS h (id)"
)

# It consumes from other queues now; no row back: the lease is lost.
HOLD_OTHER: LiteralString = """
WITH used AS (
    UPDATE everyslot_transport_queue q SET was_consumed = true, last_used_at = now()
      FROM everyslot_transport_holder h
     WHERE h.id = %(holder)s AND (q.auto_delete OR q.expires IS NOT NULL)
       AND q.name = ANY (h.queues) <> (q.name = ANY (%(queues)b::text[]))
)
UPDATE everyslot_transport_holder
   SET queues = %(queues)b::text[], alive_until = now() + %(lease)s * interval '1 second'
 WHERE id = %(holder)s RETURNING id
"""

# Renew the lease of everything that a connection holds; no row back: it is lost. Behind a pooler the lock may be with
# another server session than this one: then it says nothing about the connection's life.
RENEW: LiteralString = (
    """
UPDATE everyslot_transport_holder SET alive_until = now() + %(lease)s * interval '1 second',
       locked = """
    + f"{_LOCK_KEY} IN ({_LOCKS} AND l.pid = pg_backend_pid())"
    + """
 WHERE id = %(holder)s RETURNING id
"""
)

RELEASE: LiteralString = """
WITH released AS (DELETE FROM everyslot_transport_holder WHERE id = %(holder)s RETURNING queues)
UPDATE everyslot_transport_queue SET last_used_at = now()
 WHERE (auto_delete OR expires IS NOT NULL) AND name IN (SELECT unnest(queues) FROM released)
"""

# Whoever gets the row sweeps; the others find it locked or fresh.
BEGIN_SWEEP: LiteralString = """
UPDATE everyslot_transport_sweep SET swept_at = now() WHERE ctid = (
    SELECT ctid FROM everyslot_transport_sweep
     WHERE swept_at < now() - %(interval)s * interval '1 second' FOR UPDATE SKIP LOCKED)
RETURNING 1
"""

# Holders whose lease has expired or whose session has ended leave; their queues count as used until now.
REAP_HOLDERS: LiteralString = (
    """
WITH reaped AS (
    DELETE FROM everyslot_transport_holder
     WHERE alive_until < now() OR (locked AND """
    + f"{_LOCK_KEY} NOT IN ({_LOCKS}))"
    + """
    RETURNING queues)
UPDATE everyslot_transport_queue SET last_used_at = now()
 WHERE (auto_delete OR expires IS NOT NULL) AND name IN (SELECT unnest(queues) FROM reaped)
"""
)

# Queues that nobody consumes leave: auto-delete ones that were consumed, and those unused for longer than x-expires.
RETIRE_QUEUES: LiteralString = """
DELETE FROM everyslot_transport_queue q
 WHERE ((q.auto_delete AND q.was_consumed) OR q.last_used_at + q.expires * interval '1 millisecond' < now())
   AND (%(names)b::text[] IS NULL OR q.name = ANY (%(names)b::text[]))
   AND NOT EXISTS (SELECT FROM everyslot_transport_holder h WHERE q.name = ANY (h.queues))
RETURNING q.name
"""

# Names that messages carry and no queue has: published while their queue was being deleted. Walks the index by name.
LOST_QUEUES: LiteralString = """
WITH RECURSIVE present (name) AS (
    (SELECT queue FROM everyslot_transport_message WHERE holder IS NULL AND dying IS NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT m.queue FROM everyslot_transport_message m
             WHERE m.holder IS NULL AND m.dying IS NULL AND m.queue > p.name ORDER BY m.queue LIMIT 1)
      FROM present p WHERE p.name IS NOT NULL
)
SELECT name FROM present
 WHERE name IS NOT NULL AND NOT EXISTS (SELECT FROM everyslot_transport_queue q WHERE q.name = present.name)
"""
