-- name: bury_letters
-- Notes dead messages; burying one twice changes nothing.
INSERT INTO scheduler_app_deadletter (run_id, attempt, task, queue, reason, detail, headers, body, digest,
    decided_by, decision_reason)
SELECT l.run_id, l.attempt, l.task, l.queue, l.reason, '', l.headers::jsonb, l.body, l.digest, '', ''
FROM unnest(%(run_ids)s::uuid[], %(attempts)s::int[], %(tasks)s::text[], %(queues)s::text[], %(reasons)s::text[],
    %(headers)s::text[], %(bodies)s::text[], %(digests)s::text[])
    AS l(run_id, attempt, task, queue, reason, headers, body, digest)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: fill_letters
-- Adds what the message said to the letter that the run's own end has written.
UPDATE scheduler_app_deadletter d SET headers = l.headers::jsonb, body = l.body, queue = l.queue
FROM unnest(%(run_ids)s::uuid[], %(attempts)s::int[], %(headers)s::text[], %(bodies)s::text[], %(queues)s::text[])
    AS l(run_id, attempt, headers, body, queue)
WHERE d.run_id = l.run_id AND d.headers = '{}'::jsonb AND d.attempt = l.attempt
RETURNING d.id;
