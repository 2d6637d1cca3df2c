-- name: bound_transaction
-- Ends this transaction by itself if its process freezes or is blocked, so that it cannot block a successor.
SELECT set_config('idle_in_transaction_session_timeout', %(idle)s, true),
    set_config('lock_timeout', %(lock)s, true), set_config('statement_timeout', %(statement)s, true);

-- name: active_runs
-- The runs of these jobs that are not final, in the order of recording.
SELECT job_id, id, status = 'running' FROM scheduler_app_jobrun
WHERE job_id = ANY(%(jobs)s::bigint[]) AND NOT status IN ('cancelled', 'dead', 'skipped', 'succeeded')
ORDER BY job_id, seq;

-- name: lock_active_runs
-- Keeps these jobs' active runs as they are until the end of the transaction; those that are changing right now
-- are left out.
SELECT id FROM scheduler_app_jobrun
WHERE job_id = ANY(%(jobs)s::bigint[]) AND NOT status IN ('cancelled', 'dead', 'skipped', 'succeeded')
ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: insert_slots
-- Inserts one run a slot, due or skipped, from the job's row; a slot that has its run already is left out.
INSERT INTO scheduler_app_jobrun (
    id, job_id, task, args, payload, scheduled_for, status, reason, attempts, max_attempts, run_after,
    held_by, dispatches, last_error, progress_message, trigger, triggered_by, request_key, recorded_epoch,
    concurrency_key, ordering_key, time_limit, job_version, queue, priority, finished_at)
SELECT n.id, j.id, j.task, '[]'::jsonb, j.payload, n.slot, CASE WHEN n.reason = '' THEN 'queued' ELSE 'skipped' END,
    n.reason, 0, n.max_attempts, n.run_after, n.held_by, 0, '', '', 'schedule', '', '', %(epoch)s::bigint,
    '', '', j.time_limit, j.version, j.queue, j.priority, CASE WHEN n.reason <> '' THEN clock_timestamp() END
FROM unnest(
    %(ids)s::uuid[], %(jobs)s::bigint[], %(slots)s::timestamptz[], %(reasons)s::text[],
    %(run_after)s::timestamptz[], %(held_by)s::uuid[], %(max_attempts)s::int[]
) AS n(id, job_id, slot, reason, run_after, held_by, max_attempts)
JOIN scheduler_app_job j ON j.id = n.job_id
ON CONFLICT (job_id, scheduled_for) DO NOTHING
RETURNING id;

-- name: insert_gaps
-- Notes gaps as ranges; a range that begins at the same slot becomes longer.
INSERT INTO scheduler_app_skippedrange (job_id, first, last, count, reason, job_version)
SELECT n.job_id, n.first, n.last, n.count, n.reason, j.version
FROM unnest(
    %(jobs)s::bigint[], %(firsts)s::timestamptz[], %(lasts)s::timestamptz[], %(counts)s::bigint[], %(reasons)s::text[]
) AS n(job_id, first, last, count, reason)
JOIN scheduler_app_job j ON j.id = n.job_id
ON CONFLICT (job_id, first) DO UPDATE SET last = EXCLUDED.last, count = EXCLUDED.count
WHERE scheduler_app_skippedrange.last < EXCLUDED.last;

-- name: cancel_replaced
-- Cancels earlier runs that have not started; one that was claimed meanwhile stays as it is.
UPDATE scheduler_app_jobrun SET status = 'cancelled', reason = 'replaced', held_by = NULL,
    finished_at = clock_timestamp()
WHERE id = ANY(%(ids)s::uuid[]) AND status = 'queued';

-- name: stop_replaced
-- Asks the workers of earlier runs to stop them.
UPDATE scheduler_app_jobrun SET cancel_requested_at = clock_timestamp()
WHERE id = ANY(%(ids)s::uuid[]) AND status = 'running' AND cancel_requested_at IS NULL;

-- name: release_orphans
-- Frees runs whose holder has ended or does not exist: the holder's end may have committed before the hold did.
UPDATE scheduler_app_jobrun SET held_by = NULL
WHERE id IN (
    SELECT r.id FROM scheduler_app_jobrun r
    WHERE r.held_by IS NOT NULL AND r.status = 'queued' AND NOT EXISTS (
        SELECT 1 FROM scheduler_app_jobrun h WHERE h.id = r.held_by AND h.status IN ('queued', 'running'))
    ORDER BY r.id LIMIT %(limit)s FOR UPDATE OF r SKIP LOCKED
)
RETURNING id;
