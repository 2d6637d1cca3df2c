-- name: try_lock_step
-- Whether this transaction may now run the step: false while another one that holds it is open.
SELECT pg_try_advisory_xact_lock(hashtextextended(%(run)s::text || '/' || %(name)s, 0));

-- name: done_step
-- The result of a step that is done; no row if it is not.
SELECT result::text FROM processed_steps WHERE run_id = %(run)s::uuid AND name = %(name)s;

-- name: note_step
-- Writes that a step is done; a second time is an error, since the step's lock forbids it.
INSERT INTO processed_steps (run_id, name, result) VALUES (%(run)s::uuid, %(name)s, %(result)s::jsonb);
