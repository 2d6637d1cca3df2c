-- name: defer_unknown
-- Lets queued runs wait for a worker that knows their task: a second, then a quarter of what they have waited so, up to
-- a minute. One that has waited in vain for the whole patience is dead, with its dead letter, and what was held by it is
-- free. Comes back with every run of that id and task; the rest of the row is there if this changed it.
WITH w AS (
    SELECT DISTINCT id, attempt, task
    FROM unnest(%(ids)s::uuid[], %(attempts)s::int[], %(tasks)s::text[]) AS w(id, attempt, task)
), waited AS (
    SELECT r.id, extract(epoch FROM clock_timestamp() - COALESCE(r.unknown_since, clock_timestamp()))::float8 AS seconds
    FROM w JOIN scheduler_app_jobrun r ON r.id = w.id AND r.task = w.task
    WHERE r.status = 'queued' AND r.attempts = w.attempt AND r.held_by IS NULL
    ORDER BY r.id FOR UPDATE OF r
), deferred AS (
    UPDATE scheduler_app_jobrun r SET
        status = CASE WHEN v.seconds < %(patience)s THEN r.status ELSE 'dead' END,
        reason = CASE WHEN v.seconds < %(patience)s THEN '' ELSE 'unknown_task' END,
        finished_at = CASE WHEN v.seconds < %(patience)s THEN NULL ELSE clock_timestamp() END,
        run_after = clock_timestamp() + LEAST(60, 1 + v.seconds / 4) * interval '1 second',
        unknown_since = COALESCE(r.unknown_since, clock_timestamp()), last_error = %(error)s,
        dispatched_at = NULL, dispatches = 0
    FROM waited v WHERE r.id = v.id
    RETURNING r.id, r.status, r.attempts, r.canvas, r.task, r.queue, r.reason, r.priority, r.last_error
), buried AS (
    INSERT INTO scheduler_app_deadletter (run_id, attempt, task, queue, reason, detail, headers, body, digest,
        decided_by, decision_reason)
    SELECT id, attempts, task, queue, reason, last_error, '{}'::jsonb, '', '', '', ''
    FROM deferred WHERE status = 'dead'
    ON CONFLICT DO NOTHING
), freed AS (
    UPDATE scheduler_app_jobrun h SET held_by = NULL FROM deferred d
    WHERE h.held_by = d.id AND d.status = 'dead'
    RETURNING h.id
)
SELECT r.id, d.status, d.attempts, d.canvas::text, d.priority, (SELECT count(*) FROM freed)
FROM (SELECT DISTINCT id, task FROM w) w
JOIN scheduler_app_jobrun r ON r.id = w.id AND r.task = w.task LEFT JOIN deferred d ON d.id = r.id;
