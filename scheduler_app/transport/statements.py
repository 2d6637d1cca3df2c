"""Every statement of the transport, each with the one sentence that it promises. Set-based: arrays in, sets out.

Reading and acknowledging commit without waiting for the disk: what a crash of the server takes back is a delivery or
an acknowledgement, and both only mean one more delivery. Publishing always waits.
"""

from __future__ import annotations

from typing import LiteralString

_NO_WAIT: LiteralString = "SELECT set_config('synchronous_commit', 'off', true)"

# Which queues an (exchange, routing key) reaches: needs a relation `address (exchange, routing_key)` before it.
_ROUTE: LiteralString = """
    SELECT a.exchange, a.routing_key, q.name AS queue, q.message_ttl
      FROM address a JOIN everyslot_transport_queue q ON a.exchange = '' AND q.name = a.routing_key
    UNION
    SELECT a.exchange, a.routing_key, q.name, q.message_ttl
      FROM address a
      JOIN everyslot_transport_binding b ON b.exchange = a.exchange
      JOIN everyslot_transport_queue q ON q.name = b.queue
      LEFT JOIN everyslot_transport_exchange e ON e.name = a.exchange
     WHERE CASE coalesce(e.type, 'direct')
             WHEN 'direct' THEN b.routing_key = a.routing_key
             WHEN 'topic' THEN a.routing_key || '.' ~ b.pattern
             ELSE true END
"""

# Store each message once per queue that it reaches; answer per address the queues and who of them is listened to.
PUBLISH: LiteralString = (
    """
WITH item AS MATERIALIZED (
    SELECT * FROM unnest(%(exchanges)b::text[], %(routing_keys)b::text[], %(priorities)b::smallint[],
                         %(ttls)b::bigint[], %(payloads)b::text[])
             WITH ORDINALITY AS i (exchange, routing_key, priority, ttl, payload, position)
), address AS MATERIALIZED (
    SELECT DISTINCT exchange, routing_key FROM item
), route AS MATERIALIZED ("""
    + _ROUTE
    + """), stored AS (
    INSERT INTO everyslot_transport_message (queue, exchange, routing_key, priority, expires_at, payload)
    SELECT r.queue, i.exchange, i.routing_key, i.priority,
           now() + least(i.ttl, r.message_ttl) * interval '1 millisecond', i.payload
      FROM item i JOIN route r ON r.exchange = i.exchange AND r.routing_key = i.routing_key
     ORDER BY i.position
)
SELECT a.exchange, a.routing_key, r.queue,
       EXISTS (SELECT FROM everyslot_transport_holder h WHERE r.queue = ANY (h.queues)) AS listened
  FROM address a LEFT JOIN route r ON r.exchange = a.exchange AND r.routing_key = a.routing_key
"""
)

# Acknowledge, then take up to `count` ready messages in turn from the queues: priority first, then age.
READ: LiteralString = (
    "WITH no_wait AS MATERIALIZED ("
    + _NO_WAIT
    + """), acknowledged AS (
    DELETE FROM everyslot_transport_message WHERE id = ANY (%(acks)b::bigint[]) AND holder = %(holder)s
), ready AS MATERIALIZED (
    SELECT m.id, m.priority, q.turn
      FROM no_wait, unnest(%(queues)b::text[]) WITH ORDINALITY AS q (name, turn)
     CROSS JOIN LATERAL (
        SELECT id, priority FROM everyslot_transport_message
         WHERE queue = q.name AND holder IS NULL AND dying IS NULL
           AND (expires_at IS NULL OR expires_at > now())
         ORDER BY priority DESC, id LIMIT %(count)s FOR UPDATE SKIP LOCKED) m
), picked AS MATERIALIZED (
    SELECT id, turn, row_number() OVER (PARTITION BY turn ORDER BY priority DESC, id) AS rank
      FROM ready ORDER BY rank, turn LIMIT %(count)s
)
UPDATE everyslot_transport_message m SET holder = %(holder)s, deliveries = m.deliveries + 1
  FROM picked p WHERE m.id = p.id
RETURNING p.rank, p.turn, m.id, m.queue, m.exchange, m.routing_key, m.deliveries, m.deaths, m.payload
"""
)

# The same for consumers that never acknowledge: a message is gone when it has been read.
TAKE: LiteralString = (
    "WITH no_wait AS MATERIALIZED ("
    + _NO_WAIT
    + """), ready AS MATERIALIZED (
    SELECT m.id, m.priority, q.turn
      FROM no_wait, unnest(%(queues)b::text[]) WITH ORDINALITY AS q (name, turn)
     CROSS JOIN LATERAL (
        SELECT id, priority FROM everyslot_transport_message
         WHERE queue = q.name AND holder IS NULL AND dying IS NULL
           AND (expires_at IS NULL OR expires_at > now())
         ORDER BY priority DESC, id LIMIT %(count)s FOR UPDATE SKIP LOCKED) m
), picked AS MATERIALIZED (
    SELECT id, turn, row_number() OVER (PARTITION BY turn ORDER BY priority DESC, id) AS rank
      FROM ready ORDER BY rank, turn LIMIT %(count)s
)
DELETE FROM everyslot_transport_message m USING picked p WHERE m.id = p.id
RETURNING p.rank, p.turn, m.id, m.queue, m.exchange, m.routing_key, m.deliveries + 1, m.deaths, m.payload
"""
)

# Delete what this holder has acknowledged; what it no longer holds is left alone.
ACKNOWLEDGE: LiteralString = (
    "WITH no_wait AS MATERIALIZED ("
    + _NO_WAIT
    + """)
DELETE FROM everyslot_transport_message m USING no_wait
 WHERE m.id = ANY (%(acks)b::bigint[]) AND m.holder = %(holder)s
"""
)

_OVER_THE_LIMIT: LiteralString = """
    CASE WHEN m.deliveries > coalesce((SELECT q.delivery_limit FROM everyslot_transport_queue q
                                        WHERE q.name = m.queue), %(delivery_limit)s) THEN 'delivery_limit' END
"""

# Make messages of this holder visible again at once; those over their queue's delivery limit are dying instead.
GIVE_BACK: LiteralString = (
    "UPDATE everyslot_transport_message m SET holder = NULL, dying ="
    + _OVER_THE_LIMIT
    + """WHERE m.id = ANY (%(ids)b::bigint[]) AND m.holder = %(holder)s
RETURNING m.id, m.queue, m.dying IS NOT NULL
"""
)

# The same for everything that some holders hold.
GIVE_BACK_OF: LiteralString = (
    "UPDATE everyslot_transport_message m SET holder = NULL, dying ="
    + _OVER_THE_LIMIT
    + """WHERE m.holder = ANY (%(holders)b::bigint[])
RETURNING m.id, m.queue, m.dying IS NOT NULL
"""
)

# The same for messages whose holder is gone.
GIVE_BACK_ORPHANS: LiteralString = (
    "UPDATE everyslot_transport_message m SET holder = NULL, dying ="
    + _OVER_THE_LIMIT
    + """WHERE m.id IN (
    SELECT o.id FROM everyslot_transport_message o
     WHERE o.holder IS NOT NULL
       AND NOT EXISTS (SELECT FROM everyslot_transport_holder h WHERE h.id = o.holder)
     LIMIT %(page)s FOR UPDATE SKIP LOCKED)
RETURNING m.id, m.queue, m.dying IS NOT NULL
"""
)

# Mark messages of this holder as dying because their consumer refused them.
REJECT: LiteralString = """
UPDATE everyslot_transport_message m SET holder = NULL, dying = 'rejected'
 WHERE m.id = ANY (%(ids)b::bigint[]) AND m.holder = %(holder)s
"""

# Mark messages that nobody read in time.
EXPIRE: LiteralString = """
UPDATE everyslot_transport_message SET dying = 'expired' WHERE id IN (
    SELECT id FROM everyslot_transport_message
     WHERE expires_at <= now() AND holder IS NULL AND dying IS NULL
     LIMIT %(page)s FOR UPDATE SKIP LOCKED)
"""

# Move dying messages to their queue's dead-letter exchange; without one they are dropped, with one that reaches no
# queue they stay and are tried again. `ids` NULL means a page of all of them after `after`.
BURY: LiteralString = (
    """
WITH dying AS MATERIALIZED (
    SELECT m.*, q.dead_letter_exchange AS target, coalesce(q.dead_letter_routing_key, m.routing_key) AS target_key
      FROM everyslot_transport_message m LEFT JOIN everyslot_transport_queue q ON q.name = m.queue
     WHERE m.dying IS NOT NULL AND m.id > %(after)s
       AND (%(ids)b::bigint[] IS NULL OR m.id = ANY (%(ids)b::bigint[]))
     ORDER BY m.id LIMIT %(page)s FOR UPDATE OF m SKIP LOCKED
), address AS MATERIALIZED (
    SELECT DISTINCT target AS exchange, target_key AS routing_key FROM dying WHERE target IS NOT NULL
), route AS MATERIALIZED ("""
    + _ROUTE
    + """), buried AS (
    INSERT INTO everyslot_transport_message (queue, exchange, routing_key, priority, expires_at, deaths, payload)
    SELECT r.queue, d.target, d.target_key, d.priority, now() + r.message_ttl * interval '1 millisecond',
           jsonb_build_object(
               'first', coalesce(d.deaths -> 'first', jsonb_build_object(
                   'reason', d.dying, 'queue', d.queue, 'exchange', d.exchange)),
               'delivery_count', greatest(d.deliveries - 1, 0),
               'history', jsonb_build_array(jsonb_build_object(
                   'reason', d.dying, 'queue', d.queue, 'exchange', d.exchange,
                   'routing-keys', jsonb_build_array(d.routing_key),
                   'time', extract(epoch FROM now()),
                   'count', 1 + coalesce((SELECT (e ->> 'count')::integer
                                            FROM jsonb_array_elements(d.deaths -> 'history') e
                                           WHERE e ->> 'queue' = d.queue AND e ->> 'reason' = d.dying), 0)))
                 || coalesce((SELECT jsonb_agg(e) FROM jsonb_array_elements(d.deaths -> 'history') e
                               WHERE NOT (e ->> 'queue' = d.queue AND e ->> 'reason' = d.dying)), '[]')),
           d.payload
      FROM dying d JOIN route r ON r.exchange = d.target AND r.routing_key = d.target_key
     ORDER BY d.id
    RETURNING queue
), gone AS (
    DELETE FROM everyslot_transport_message m USING dying d
     WHERE m.id = d.id
       AND (d.target IS NULL OR EXISTS (SELECT FROM route r
                                         WHERE r.exchange = d.target AND r.routing_key = d.target_key))
    RETURNING d.target IS NULL AS dropped
)
SELECT coalesce((SELECT array_agg(DISTINCT queue) FROM buried), '{}') AS queues,
       (SELECT count(*) FROM gone WHERE dropped) AS dropped,
       (SELECT count(*) FROM dying) - (SELECT count(*) FROM gone) AS waiting,
       (SELECT CASE WHEN count(*) = %(page)s THEN max(id) ELSE 0 END FROM dying) AS next_after
"""
)

# Wake the consumers of queues; sent in a transaction of its own, since its commit takes a lock of the whole database.
NOTIFY: LiteralString = "SELECT pg_notify(channel, '') FROM unnest(%(channels)b::text[]) AS channel"
