-- name: read_term
-- Who leads, and whether that term may be taken: it is free, it has run out, or the holder's session may be gone.
SELECT holder, epoch, holder = '' OR renewed_at IS NULL
        OR renewed_at + duration * interval '1 second' < clock_timestamp()
        OR renewed_at - duration * interval '1 second' > clock_timestamp(), session_locked
FROM scheduler_app_term WHERE shard = %(shard)s;

-- name: take_term
-- Takes a term that is free, has run out, or whose holder's session is gone (this session has got its lock). A renewal
-- that lies in the future tells of a clock set back since; a living leader would have written a new one.
UPDATE scheduler_app_term SET holder = %(holder)s, epoch = epoch + 1, acquired_at = clock_timestamp(),
    renewed_at = clock_timestamp(), duration = %(duration)s, transitions = transitions + 1,
    session_locked = %(locked)s
WHERE shard = %(shard)s AND (holder = '' OR renewed_at IS NULL
    OR renewed_at + duration * interval '1 second' < clock_timestamp()
    OR renewed_at - duration * interval '1 second' > clock_timestamp()
    OR (session_locked AND %(locked)s))
RETURNING epoch;

-- name: renew_term
-- Checks, renews and locks the term until the transaction ends; no row comes back once another leads.
UPDATE scheduler_app_term SET renewed_at = clock_timestamp()
WHERE shard = %(shard)s AND holder = %(holder)s AND epoch = %(epoch)s
RETURNING clock_timestamp();

-- name: mark_session_lock
-- Notes that the leader's session holds the advisory lock (or no longer does).
UPDATE scheduler_app_term SET session_locked = %(locked)s
WHERE shard = %(shard)s AND holder = %(holder)s AND epoch = %(epoch)s
RETURNING epoch;

-- name: free_term
-- Gives the term up; the epoch stays, so that the next leader's is higher.
UPDATE scheduler_app_term SET holder = '', session_locked = false
WHERE shard = %(shard)s AND holder = %(holder)s AND epoch = %(epoch)s
RETURNING epoch;

-- name: lock_session
-- Tries to take an advisory lock for this session.
SELECT pg_try_advisory_lock(%(key)s::bigint);

-- name: unlock_session
-- Gives the advisory lock back.
SELECT pg_advisory_unlock(%(key)s::bigint);

-- name: make_term
-- Makes the row of a shard that has none.
INSERT INTO scheduler_app_term (shard, holder, epoch, duration, transitions, session_locked)
VALUES (%(shard)s, '', 0, %(duration)s, 0, false) ON CONFLICT (shard) DO NOTHING;

-- name: database_time
-- The database's time.
SELECT clock_timestamp();

-- name: notify_jobs
-- Wakes every beat; for use in autocommit only.
SELECT pg_notify('everyslot_jobs', '');
