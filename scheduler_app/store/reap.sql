-- name: watch_workers
-- When this database server started, beside every worker that has not stopped (one row without a worker if there is
-- none) and whether its session lock is held by anyone just now.
WITH held AS (
    SELECT (l.classid::bigint << 32) | l.objid::bigint AS key FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
SELECT server.started, w.id, w.beats, w.lease, w.locked,
    w.locked AND EXISTS (SELECT 1 FROM held WHERE held.key = w.lock_key)
FROM (SELECT pg_postmaster_start_time() AS started) AS server
LEFT JOIN scheduler_app_worker w ON w.stopped_at IS NULL;

-- name: forget_workers
-- Removes the rows of workers that stopped long ago and have nothing running.
DELETE FROM scheduler_app_worker WHERE id IN (
    SELECT w.id FROM scheduler_app_worker w
    WHERE w.stopped_at < clock_timestamp() - %(keep)s * interval '1 second'
        AND NOT EXISTS (SELECT 1 FROM scheduler_app_jobrun r WHERE r.locked_by = w.id AND r.status = 'running')
    ORDER BY w.id LIMIT %(limit)s
)
RETURNING id;

-- name: workers_with_leftovers
-- Stopped workers under whose name something still runs: their end was cut off between its two steps.
SELECT w.id FROM scheduler_app_worker w
WHERE w.stopped_at < clock_timestamp() - interval '5 seconds'
    AND w.id IN (SELECT DISTINCT locked_by FROM scheduler_app_jobrun WHERE status = 'running')
ORDER BY w.id LIMIT %(limit)s;

-- name: bound_session
-- Lets no statement of this session wait long for a lock: a frozen worker may hold its runs' rows for a while.
SELECT set_config('lock_timeout', %(lock)s, false);
