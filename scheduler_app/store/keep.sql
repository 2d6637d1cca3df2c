-- name: open_worker
-- Makes the row that carries the lease of everything this worker start will run.
INSERT INTO scheduler_app_worker (id, name, hostname, pid, concurrency, queues, lease, beats, lock_key, locked, end_reason)
VALUES (%(id)s::uuid, %(name)s, %(hostname)s, %(pid)s, %(concurrency)s, %(queues)s::jsonb, %(lease)s, 0,
    %(lock_key)s, %(locked)s, '')
ON CONFLICT (id) DO UPDATE SET locked = EXCLUDED.locked, heartbeat_at = clock_timestamp()
WHERE scheduler_app_worker.stopped_at IS NULL
RETURNING id;

-- name: beat_worker
-- Renews the lease; no row comes back once the reaper has declared this worker dead.
UPDATE scheduler_app_worker SET heartbeat_at = clock_timestamp(), beats = beats + 1
WHERE id = %(id)s::uuid AND stopped_at IS NULL
RETURNING beats;

-- name: stop_worker
-- Ends the worker's row, once.
UPDATE scheduler_app_worker SET stopped_at = clock_timestamp(), end_reason = %(reason)s, locked = false
WHERE id = %(id)s::uuid AND stopped_at IS NULL
RETURNING id;

-- name: hold_session_lock
-- Takes the session advisory lock that tells of this session's death; false if another session has it.
SELECT pg_try_advisory_lock(%(key)s);

-- name: running_now
-- What runs under the worker's name, and for how many seconds it has been asked to stop; null if it is not.
SELECT id, attempts, extract(epoch FROM clock_timestamp() - cancel_requested_at)::float8 FROM scheduler_app_jobrun
WHERE locked_by = %(id)s::uuid AND status = 'running' ORDER BY id;
