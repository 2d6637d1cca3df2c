-- name: queues_ready
-- The queues that have a run to hand out (held ones and those that wait for their time aside), by skipping through
-- the index of what is ready.
WITH RECURSIVE q AS (
    (SELECT queue FROM scheduler_app_jobrun
     WHERE status = 'queued' AND dispatched_at IS NULL AND held_by IS NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT r.queue FROM scheduler_app_jobrun r
            WHERE r.status = 'queued' AND r.dispatched_at IS NULL AND r.held_by IS NULL AND r.queue > q.queue
            ORDER BY r.queue LIMIT 1)
    FROM q WHERE q.queue IS NOT NULL
)
SELECT queue FROM q WHERE queue IS NOT NULL;

-- name: count_published
-- How many runs of each queue are published but unclaimed, counted up to the window.
SELECT q.queue, (
    SELECT count(*) FROM (
        SELECT 1 FROM scheduler_app_jobrun r
        WHERE r.queue = q.queue AND r.status = 'queued' AND r.dispatched_at IS NOT NULL LIMIT %(window)s
    ) AS counted)
FROM unnest(%(queues)s::text[]) AS q(queue);

-- name: mark_ready
-- Marks runs as published, in each queue up to its room, and returns them in the order to publish them in: highest
-- priority first. Those that others have are left out.
-- `now()` and not the volatile clock: only a stable value bounds the index scan, which else reads all that waits.
WITH taken AS (
    SELECT r.id FROM unnest(%(queues)s::text[], %(rooms)s::int[]) AS q(queue, room)
    CROSS JOIN LATERAL (
        SELECT r.id FROM generate_series(9, 0, -1) AS p(priority)
        CROSS JOIN LATERAL (
            SELECT id FROM scheduler_app_jobrun
            WHERE queue = q.queue AND priority = p.priority AND run_after <= now()
                AND status = 'queued' AND dispatched_at IS NULL AND held_by IS NULL
            ORDER BY run_after, seq LIMIT q.room FOR UPDATE SKIP LOCKED
        ) AS r LIMIT q.room
    ) AS r
), marked AS (
    UPDATE scheduler_app_jobrun r SET dispatched_at = now(), dispatches = r.dispatches + 1
    FROM taken WHERE r.id = taken.id AND r.status = 'queued' AND r.dispatched_at IS NULL
    RETURNING r.id, r.task, r.attempts, r.queue, r.priority, r.dispatched_at, r.run_after, r.seq
)
SELECT id, task, attempts, queue, priority, dispatched_at FROM marked ORDER BY priority DESC, run_after, seq;

-- name: count_silent
-- The queues that have a run published and silent for longer than the patience, with how many are published but
-- unclaimed, counted up to the window.
SELECT q.queue, (
    SELECT count(*) FROM (
        SELECT 1 FROM scheduler_app_jobrun r
        WHERE r.queue = q.queue AND r.status = 'queued' AND r.dispatched_at IS NOT NULL LIMIT %(window)s
    ) AS counted)
FROM unnest(%(queues)s::text[]) AS q(queue)
WHERE EXISTS (
    SELECT 1 FROM scheduler_app_jobrun r
    WHERE r.queue = q.queue AND r.status = 'queued'
        AND r.dispatched_at < now() - %(patience)s * interval '1 second');

-- name: mark_silent
-- Marks runs again that were published and have been silent for too long, the longest first: twice the patience after
-- each publication, up to the highest.
WITH taken AS (
    SELECT r.id FROM unnest(%(queues)s::text[], %(rooms)s::int[]) AS q(queue, room)
    CROSS JOIN LATERAL (
        SELECT id FROM scheduler_app_jobrun
        WHERE queue = q.queue AND status = 'queued' AND dispatched_at < now() - %(patience)s * interval '1 second'
            AND dispatched_at < now() - interval '1 second' * LEAST(
                %(most)s::float8, %(patience)s * 2.0 ^ LEAST(GREATEST(dispatches, 1) - 1, 30))
        ORDER BY dispatched_at LIMIT q.room FOR UPDATE SKIP LOCKED
    ) AS r
), marked AS (
    UPDATE scheduler_app_jobrun r SET dispatched_at = now(), dispatches = r.dispatches + 1
    FROM taken WHERE r.id = taken.id AND r.status = 'queued' AND r.dispatched_at IS NOT NULL
    RETURNING r.id, r.task, r.attempts, r.queue, r.priority, r.dispatched_at, r.run_after, r.seq
)
SELECT id, task, attempts, queue, priority, dispatched_at FROM marked ORDER BY priority DESC, run_after, seq;

-- name: put_back
-- Takes a mark off again if it is still the same one; after a refusal the run waits longer each time.
UPDATE scheduler_app_jobrun r SET dispatched_at = NULL,
    dispatches = GREATEST(r.dispatches - CASE WHEN %(refused)s THEN 0 ELSE 1 END, 0),
    run_after = CASE WHEN %(refused)s
        THEN GREATEST(r.run_after, clock_timestamp() + interval '1 second' * LEAST(60, 2.0 ^ LEAST(r.dispatches - 1, 6)))
        ELSE r.run_after END
FROM unnest(%(ids)s::uuid[], %(marks)s::timestamptz[]) AS v(id, mark)
WHERE r.id = v.id AND r.status = 'queued' AND r.dispatched_at = v.mark
RETURNING r.id;

-- name: next_ready
-- Seconds until the next run's time comes, over all queues and priorities; null if none waits for its time.
SELECT extract(epoch FROM min(r.run_after) - clock_timestamp())::float8
FROM unnest(%(queues)s::text[]) AS q(queue)
CROSS JOIN generate_series(0, 9) AS p(priority)
CROSS JOIN LATERAL (
    SELECT run_after FROM scheduler_app_jobrun
    WHERE queue = q.queue AND priority = p.priority
        AND status = 'queued' AND dispatched_at IS NULL AND held_by IS NULL
    ORDER BY run_after, seq LIMIT 1
) AS r;
