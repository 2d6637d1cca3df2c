-- name: due_jobs_oldest
-- Takes the jobs whose cursor has come, longest overdue first; those that another recorder has are left out. The key
-- is not locked, so that runs of the job which are being committed elsewhere do not hide it.
SELECT id, name, task, schedule, timezone, (extract(epoch FROM anchor) * 1000000)::bigint, gap, fold,
    (extract(epoch FROM next_run_at) * 1000000)::bigint, misfire_grace, starting_deadline, catch_up,
    catch_up_limit, jitter, start_at, end_at, paused_until, max_runs, recorded_runs,
    concurrency_policy, max_attempts, version
FROM scheduler_app_job
WHERE enabled AND deleted_at IS NULL AND quarantined_at IS NULL AND next_run_at <= %(now)s::timestamptz
ORDER BY next_run_at, id LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED;

-- name: due_jobs_newest
-- As due_jobs_oldest, but the jobs that came due last are first.
SELECT id, name, task, schedule, timezone, (extract(epoch FROM anchor) * 1000000)::bigint, gap, fold,
    (extract(epoch FROM next_run_at) * 1000000)::bigint, misfire_grace, starting_deadline, catch_up,
    catch_up_limit, jitter, start_at, end_at, paused_until, max_runs, recorded_runs,
    concurrency_policy, max_attempts, version
FROM scheduler_app_job
WHERE enabled AND deleted_at IS NULL AND quarantined_at IS NULL AND next_run_at <= %(now)s::timestamptz
ORDER BY next_run_at DESC, id DESC LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED;

-- name: move_cursors
-- Sets the cursors of locked jobs and counts what was recorded for them.
UPDATE scheduler_app_job j SET next_run_at = v.next_run_at, recorded_runs = j.recorded_runs + v.runs
FROM unnest(%(ids)s::bigint[], %(cursors)s::timestamptz[], %(runs)s::int[]) AS v(id, next_run_at, runs)
WHERE j.id = v.id;

-- name: quarantine_jobs
-- Sets locked jobs aside with the reason; `enabled` and the cursor stay, so that nothing is lost when it is lifted.
UPDATE scheduler_app_job j SET quarantined_at = clock_timestamp(), quarantine_reason = v.reason
FROM unnest(%(ids)s::bigint[], %(reasons)s::text[]) AS v(id, reason)
WHERE j.id = v.id AND j.quarantined_at IS NULL
RETURNING j.id;

-- name: lift_quarantine
-- Takes back jobs whose task was unknown to an earlier leader and is known to this one.
UPDATE scheduler_app_job SET quarantined_at = NULL, quarantine_reason = ''
WHERE id IN (
    SELECT id FROM scheduler_app_job
    WHERE quarantined_at IS NOT NULL AND deleted_at IS NULL AND task = ANY(%(tasks)s::text[])
        AND quarantine_reason = %(unknown)s || task
    ORDER BY id FOR UPDATE SKIP LOCKED
)
RETURNING id;

-- name: newest_gaps
-- The newest skipped range of each of these jobs: a gap that goes on is made longer, not noted again.
SELECT DISTINCT ON (job_id) job_id, first, last, count, reason
FROM scheduler_app_skippedrange WHERE job_id = ANY(%(ids)s::bigint[])
ORDER BY job_id, id DESC;

-- name: next_wake
-- The database's time and the first cursor of all.
SELECT clock_timestamp(), (
    SELECT next_run_at FROM scheduler_app_job
    WHERE enabled AND deleted_at IS NULL AND quarantined_at IS NULL AND next_run_at IS NOT NULL
    ORDER BY next_run_at, id LIMIT 1
);
