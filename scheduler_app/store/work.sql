-- name: claim_runs
-- Takes the named runs for one worker; one that is not queued, free and at the named attempt is left out. A run past
-- its deadline is skipped instead; one whose concurrency key is taken is left out (see hold_busy).
WITH wanted AS (
    SELECT w.id, w.attempt FROM unnest(%(ids)s::uuid[], %(attempts)s::int[]) AS w(id, attempt)
), free AS (
    SELECT r.id,
        r.concurrency_key,
        CASE WHEN r.attempts > 0 THEN ''
            WHEN r.expires_at < clock_timestamp() THEN 'expired'
            WHEN r.trigger = 'schedule' AND j.starting_deadline IS NOT NULL
                AND r.scheduled_for + j.starting_deadline * interval '1 second' < clock_timestamp() THEN 'deadline'
            ELSE '' END AS late,
        COALESCE(j.name, '') AS job_name, j.retry_backoff, j.retry_backoff_max, j.retry_jitter
    FROM wanted w
    JOIN scheduler_app_jobrun r ON r.id = w.id
    LEFT JOIN scheduler_app_job j ON j.id = r.job_id
    WHERE r.status = 'queued' AND r.attempts = w.attempt AND r.held_by IS NULL AND r.cancel_requested_at IS NULL
        AND r.run_after <= clock_timestamp() AND r.attempts < r.max_attempts
    ORDER BY r.id
    FOR UPDATE OF r
), chosen AS (
    SELECT f.*, clock_timestamp() AS moment FROM (
        SELECT free.*, row_number() OVER (PARTITION BY concurrency_key ORDER BY id) AS place FROM free
    ) f
    WHERE f.late <> '' OR f.concurrency_key = '' OR (f.place = 1 AND NOT EXISTS (
        SELECT 1 FROM scheduler_app_jobrun p WHERE p.status = 'running' AND p.concurrency_key = f.concurrency_key))
)
UPDATE scheduler_app_jobrun r SET
    status = CASE WHEN c.late = '' THEN 'running' ELSE 'skipped' END,
    reason = c.late,
    attempts = r.attempts + CASE WHEN c.late = '' THEN 1 ELSE 0 END,
    locked_by = CASE WHEN c.late = '' THEN %(worker)s::uuid END,
    locked_until = CASE WHEN c.late = '' THEN clock_timestamp() + %(lease)s * interval '1 second' END,
    started_at = CASE WHEN c.late = '' THEN c.moment ELSE r.started_at END,
    first_started_at = CASE WHEN c.late = '' THEN COALESCE(r.first_started_at, c.moment) END,
    unknown_since = NULL,
    finished_at = CASE WHEN c.late = '' THEN NULL ELSE clock_timestamp() END
FROM chosen c
WHERE r.id = c.id
RETURNING r.id, r.status, r.attempts, r.max_attempts, r.args::text, r.payload::text, r.scheduled_for, r.time_limit,
    r.started_at, c.job_name, extract(epoch FROM r.started_at - r.first_started_at)::float8,
    c.retry_backoff, c.retry_backoff_max, c.retry_jitter;

-- name: hold_busy
-- Those of the named runs whose concurrency key is taken wait for the run that has it; the rest goes back to the
-- dispatcher, since its predecessor ended in between.
WITH busy AS (
    SELECT p.id, p.concurrency_key FROM scheduler_app_jobrun p
    WHERE p.status = 'running' AND p.concurrency_key IN (
        SELECT r.concurrency_key FROM scheduler_app_jobrun r WHERE r.id = ANY(%(ids)s::uuid[]) AND r.concurrency_key <> '')
    ORDER BY p.id FOR UPDATE
)
UPDATE scheduler_app_jobrun r SET
    dispatched_at = NULL, dispatches = 0,
    held_by = (SELECT busy.id FROM busy WHERE busy.concurrency_key = r.concurrency_key)
FROM unnest(%(ids)s::uuid[], %(attempts)s::int[]) AS w(id, attempt)
WHERE r.id = w.id AND r.status = 'queued' AND r.attempts = w.attempt AND r.held_by IS NULL
    AND r.concurrency_key <> '' AND r.run_after <= clock_timestamp()
RETURNING r.id, r.held_by IS NOT NULL;

-- name: finish_attempts
-- Ends attempts under their fence (run, attempt number, worker, still running): writes the run, its Attempt row, its
-- dead letter, and releases what was held by it. An attempt that is no longer the current one changes nothing.
WITH f AS (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(attempts)s::int[], %(workers)s::uuid[], %(ways)s::text[], %(statuses)s::text[],
        %(reasons)s::text[], %(delays)s::float8[], %(extras)s::int[], %(errors)s::text[], %(tracebacks)s::text[],
        %(results)s::text[]
    ) AS f(id, attempt, worker, way, status, reason, delay, extra, error, traceback, result)
), done AS (
    UPDATE scheduler_app_jobrun r SET
        status = CASE WHEN f.status = 'queued' AND r.cancel_requested_at IS NOT NULL THEN 'cancelled'
            ELSE f.status END,
        reason = CASE WHEN f.status = 'queued' AND r.cancel_requested_at IS NOT NULL THEN 'requested'
            ELSE f.reason END,
        result = f.result::jsonb,
        last_error = CASE WHEN f.error = '' AND f.status <> 'succeeded' THEN r.last_error ELSE f.error END,
        max_attempts = LEAST(r.max_attempts::bigint + f.extra, 2147483647),
        run_after = CASE WHEN f.status = 'queued' THEN clock_timestamp() + f.delay * interval '1 second'
            ELSE r.run_after END,
        dispatched_at = CASE WHEN f.status = 'queued' THEN NULL ELSE r.dispatched_at END,
        dispatches = CASE WHEN f.status = 'queued' THEN 0 ELSE r.dispatches END,
        locked_by = CASE WHEN f.status = 'queued' AND r.cancel_requested_at IS NULL THEN NULL ELSE r.locked_by END,
        locked_until = NULL,
        first_started_at = CASE WHEN f.way = 'given_back' AND r.first_started_at = r.started_at THEN NULL
            ELSE r.first_started_at END,
        progress = CASE WHEN f.status = 'succeeded' AND r.progress IS NOT NULL THEN 100 ELSE r.progress END,
        finished_at = CASE WHEN f.status = 'queued' AND r.cancel_requested_at IS NULL THEN NULL
            ELSE clock_timestamp() END
    FROM f
    WHERE r.id = f.id AND r.attempts = f.attempt AND r.locked_by = f.worker AND r.status = 'running'
    RETURNING r.id, r.status, r.attempts, r.canvas, r.started_at, r.task, r.queue, r.reason, r.priority, f.worker
), noted AS (
    INSERT INTO scheduler_app_attempt (run_id, number, worker, started_at, finished_at, outcome, error, traceback)
    SELECT d.id, d.attempts, d.worker, d.started_at, clock_timestamp(), f.way, f.error, f.traceback
    FROM done d JOIN f ON f.id = d.id AND f.attempt = d.attempts
    WHERE NOT (f.way = 'returned' AND d.attempts = 1)
    ON CONFLICT DO NOTHING
), buried AS (
    INSERT INTO scheduler_app_deadletter (run_id, attempt, task, queue, reason, detail, headers, body, digest,
        decided_by, decision_reason)
    SELECT d.id, d.attempts, d.task, d.queue, d.reason, f.error, '{}'::jsonb, '', '', '', ''
    FROM done d JOIN f ON f.id = d.id AND f.attempt = d.attempts
    WHERE d.status = 'dead'
    ON CONFLICT DO NOTHING
), freed AS (
    UPDATE scheduler_app_jobrun h SET held_by = NULL FROM done d
    WHERE h.held_by = d.id AND d.status <> 'queued'
    RETURNING h.id
)
SELECT d.id, d.status, d.attempts, d.canvas::text, d.priority, (SELECT count(*) FROM freed) FROM done d;

-- name: running_of_worker
-- The attempts that run under a worker's name, with what is needed to end them and how many of each run died so before.
SELECT r.id, r.attempts, r.max_attempts, j.retry_backoff, j.retry_backoff_max, j.retry_jitter, r.task,
    extract(epoch FROM clock_timestamp() - COALESCE(r.first_started_at, r.started_at))::float8,
    (SELECT count(*) FROM scheduler_app_attempt a WHERE a.run_id = r.id AND a.outcome = 'worker_lost')
FROM scheduler_app_jobrun r LEFT JOIN scheduler_app_job j ON j.id = r.job_id
WHERE r.locked_by = %(worker)s::uuid AND r.status = 'running'
ORDER BY r.id LIMIT %(limit)s;

-- name: note_progress
-- Shows how far an attempt is; nothing is written for an attempt that is no longer the current one.
UPDATE scheduler_app_jobrun SET progress = %(percent)s, progress_message = %(message)s
WHERE id = %(id)s::uuid AND attempts = %(attempt)s AND locked_by = %(worker)s::uuid AND status = 'running'
RETURNING cancel_requested_at IS NOT NULL;

-- name: hold_attempt
-- Keeps an attempt the current one until the transaction ends; no row if it is not.
SELECT 1 FROM scheduler_app_jobrun
WHERE id = %(id)s::uuid AND attempts = %(attempt)s AND locked_by = %(worker)s::uuid AND status = 'running'
FOR SHARE;

-- name: wants_stop
-- Whether an attempt goes on: a row means that it is the current one, false in it that nobody asked to cancel.
SELECT cancel_requested_at IS NOT NULL FROM scheduler_app_jobrun
WHERE id = %(id)s::uuid AND attempts = %(attempt)s AND locked_by = %(worker)s::uuid AND status = 'running';
