-- name: lock_active_of_job
-- Keeps the runs of one job that are not final as they are until the transaction ends, in the order of recording.
SELECT id, status = 'running' FROM scheduler_app_jobrun
WHERE id IN (
    SELECT id FROM scheduler_app_jobrun
    WHERE job_id = %(job)s AND NOT status IN ('cancelled', 'dead', 'skipped', 'succeeded')
    ORDER BY id FOR UPDATE
)
ORDER BY seq;

-- name: hold_run
-- Lets a queued, undispatched run wait for the end of another one.
UPDATE scheduler_app_jobrun SET held_by = %(holder)s::uuid
WHERE id = %(id)s::uuid AND status = 'queued' AND dispatched_at IS NULL
RETURNING id;

-- name: cancel_runs
-- Ends queued runs as cancelled and asks for the end of running ones; what waited for an ended run waits for that
-- run's own holder now, or for nothing.
WITH RECURSIVE found AS (
    SELECT id, status, held_by FROM scheduler_app_jobrun
    WHERE id = ANY(%(ids)s::uuid[]) AND status IN ('queued', 'running')
    ORDER BY id FOR UPDATE
), steps AS (
    SELECT id, held_by AS heir FROM found WHERE status = 'queued'
    UNION ALL
    SELECT s.id, f.held_by FROM steps s JOIN found f ON f.id = s.heir AND f.status = 'queued'
), heirs AS (
    SELECT s.id, s.heir FROM steps s
    WHERE NOT EXISTS (SELECT 1 FROM found f WHERE f.id = s.heir AND f.status = 'queued')
), ended AS (
    UPDATE scheduler_app_jobrun r SET status = 'cancelled', reason = %(reason)s, held_by = NULL,
        cancel_requested_at = clock_timestamp(), finished_at = clock_timestamp()
    FROM found f WHERE f.id = r.id AND f.status = 'queued'
    RETURNING r.id
), asked AS (
    UPDATE scheduler_app_jobrun r SET cancel_requested_at = clock_timestamp()
    FROM found f WHERE f.id = r.id AND f.status = 'running' AND r.cancel_requested_at IS NULL
    RETURNING r.id
), passed AS (
    UPDATE scheduler_app_jobrun w SET held_by = h.heir
    FROM heirs h WHERE w.held_by = h.id AND NOT w.id = ANY(%(ids)s::uuid[])
    RETURNING w.id
)
SELECT f.id, f.status = 'queued', (SELECT count(*) FROM passed) FROM found f
WHERE f.id IN (SELECT id FROM ended UNION ALL SELECT id FROM asked);

-- name: allowances
-- What decides how many further attempts a dead or cancelled run gets, and whether it must wait in its job's line.
SELECT r.id, r.task, j.max_attempts, CASE WHEN j.concurrency_policy <> 'allow' THEN j.id END FROM scheduler_app_jobrun r
LEFT JOIN scheduler_app_job j ON j.id = r.job_id
WHERE r.id = ANY(%(ids)s::uuid[]) AND r.status IN ('dead', 'cancelled')
ORDER BY r.seq;

-- name: redrive_runs
-- Sends dead and cancelled runs back to the queue with further attempts, each after its delay and behind its holder if
-- it has one, and notes it on their dead letters; a run in any other state is left out.
WITH found AS (
    SELECT r.id, w.more, w.holder, w.delay
    FROM unnest(%(ids)s::uuid[], %(more)s::int[], %(holders)s::uuid[], %(delays)s::float8[])
        AS w(id, more, holder, delay)
    JOIN scheduler_app_jobrun r ON r.id = w.id
    WHERE r.status IN ('dead', 'cancelled')
    ORDER BY r.id FOR UPDATE OF r
), sent AS (
    UPDATE scheduler_app_jobrun r SET status = 'queued', reason = '',
        max_attempts = GREATEST(r.max_attempts, LEAST(r.attempts::bigint + f.more, 2147483647)),
        run_after = clock_timestamp() + f.delay * interval '1 second',
        held_by = f.holder, dispatched_at = NULL, dispatches = 0, locked_by = NULL, locked_until = NULL,
        finished_at = NULL, first_started_at = NULL, unknown_since = NULL,
        cancel_requested_at = NULL, expires_at = NULL, progress = NULL, progress_message = ''
    FROM found f WHERE f.id = r.id
    RETURNING r.id
), noted AS (
    UPDATE scheduler_app_deadletter d SET redriven_at = clock_timestamp(), decided_by = %(by)s,
        decision_reason = %(reason)s
    FROM sent s WHERE d.run_id = s.id AND d.redriven_at IS NULL AND d.discarded_at IS NULL
)
SELECT id FROM sent;

-- name: discard_letters
-- Decides that open dead letters stay dead; what was decided before is left out.
UPDATE scheduler_app_deadletter SET discarded_at = clock_timestamp(), decided_by = %(by)s, decision_reason = %(reason)s
WHERE id = ANY(%(ids)s::bigint[]) AND redriven_at IS NULL AND discarded_at IS NULL
RETURNING id;
