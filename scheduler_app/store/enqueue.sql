-- name: insert_runs
-- Inserts runs; one whose id, request key or slot is already there is left out, and only inserted ids come back.
INSERT INTO scheduler_app_jobrun (
    id, job_id, task, args, payload, scheduled_for, status, reason, attempts, max_attempts, run_after,
    dispatched_at, dispatches, last_error, progress_message, trigger, triggered_by, request_key,
    concurrency_key, ordering_key, expires_at, time_limit, canvas, job_version, queue, priority)
SELECT n.id, n.job_id, n.task, n.args::jsonb, n.payload::jsonb,
    COALESCE(n.scheduled_for, clock_timestamp()), 'queued', '', 0, n.max_attempts,
    COALESCE(n.run_after, clock_timestamp() + n.countdown * interval '1 second'),
    CASE WHEN n.marked THEN clock_timestamp() END, CASE WHEN n.marked THEN 1 ELSE 0 END, '', '',
    n.trigger, n.triggered_by, n.request_key, n.concurrency_key, n.ordering_key,
    COALESCE(n.expires_at, COALESCE(n.run_after, clock_timestamp() + n.countdown * interval '1 second')
        + n.starting_deadline * interval '1 second'),
    n.time_limit, n.canvas::jsonb, n.job_version, n.queue, n.priority
FROM unnest(
    %(ids)s::uuid[], %(jobs)s::bigint[], %(tasks)s::text[], %(args)s::text[], %(payloads)s::text[],
    %(slots)s::timestamptz[], %(max_attempts)s::int[], %(run_after)s::timestamptz[], %(countdowns)s::float8[],
    %(marked)s::bool[], %(triggers)s::text[], %(by)s::text[], %(request_keys)s::text[],
    %(concurrency_keys)s::text[], %(ordering_keys)s::text[], %(expires)s::timestamptz[], %(time_limits)s::int[],
    %(canvas)s::text[], %(job_versions)s::int[], %(queues)s::text[], %(priorities)s::int[],
    %(starting_deadlines)s::int[]
) AS n(id, job_id, task, args, payload, scheduled_for, max_attempts, run_after, countdown, marked, trigger,
    triggered_by, request_key, concurrency_key, ordering_key, expires_at, time_limit, canvas, job_version,
    queue, priority, starting_deadline)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_by_request_key
-- The id of the run that already carries this caller's key for this task.
SELECT id FROM scheduler_app_jobrun WHERE task = %(task)s AND request_key = %(request_key)s;

-- name: existing_runs
-- Which of these runs are there (a savepoint may have taken some back).
SELECT id FROM scheduler_app_jobrun WHERE id = ANY(%(ids)s::uuid[]);

-- name: unmark_runs
-- Puts back what the caller could not publish, so that the next dispatch takes it.
UPDATE scheduler_app_jobrun SET dispatched_at = NULL, dispatches = 0
WHERE id = ANY(%(ids)s::uuid[]) AND status = 'queued' AND attempts = 0 AND dispatches = 1
RETURNING id;

-- name: notify_runs
-- Wakes the dispatcher; sent in autocommit, since NOTIFY inside a transaction takes a database-wide lock at commit.
SELECT pg_notify('everyslot_runs', '');

-- name: refuse_runs
-- Ends runs just inserted that cannot be worked on: dead with the reason, and a dead letter each.
WITH refused AS (
    UPDATE scheduler_app_jobrun r SET
        status = 'dead', reason = 'refused', last_error = v.error, finished_at = clock_timestamp()
    FROM unnest(%(ids)s::uuid[], %(errors)s::text[]) AS v(id, error)
    WHERE r.id = v.id AND r.status = 'queued' AND r.dispatched_at IS NULL
    RETURNING r.id, r.task, r.queue, r.last_error
)
INSERT INTO scheduler_app_deadletter (run_id, attempt, task, queue, reason, detail, headers, body, digest,
    decided_by, decision_reason)
SELECT id, 0, task, queue, 'refused', last_error, '{}'::jsonb, '', '', '', '' FROM refused
ON CONFLICT DO NOTHING
RETURNING run_id;
