-- name: database_now
-- The database's time.
SELECT clock_timestamp();

-- name: remove_ahead
-- Removes a job's runs that were recorded ahead of their slot and have not started, so that the slots can be
-- recorded again; their slots come back.
DELETE FROM scheduler_app_jobrun
WHERE job_id = %(job)s AND status = 'queued' AND attempts = 0 AND trigger = 'schedule'
    AND scheduled_for > clock_timestamp()
RETURNING scheduled_for;

-- name: note_passed
-- Notes slots that a change of the job leaves behind as skipped, with the reason.
INSERT INTO scheduler_app_skippedrange (job_id, first, last, count, reason, job_version)
VALUES (%(job)s, %(first)s, %(last)s, %(count)s, %(reason)s, %(version)s)
ON CONFLICT (job_id, first) DO NOTHING;

-- name: notify_jobs
-- Wakes the recorder; sent in autocommit, since NOTIFY inside a transaction takes a database-wide lock at commit.
SELECT pg_notify('everyslot_jobs', '');
