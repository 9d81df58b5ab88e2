-- The start fence of many messages, each with its own execution id. A row belongs to the message where the claim is
-- still the current one and nobody has started it; the same execution asking again is answered alike. Rows that
-- somebody else has locked are skipped: a person's open transaction on one must not hold up its neighbours.
-- The first start of a claim is noted on it, by which older claims' lost messages are found; not waiting for who has
-- the claim locked, since a tick that has may be waiting for one of these rows. Another start notes it as well.
-- The payload comes as text, since one that can't be read must not keep the others from being read.
WITH incoming AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:tokens AS uuid[]), CAST(:executions AS uuid[]))
        AS message (id, token, execution)
), free AS MATERIALIZED (
    SELECT job.id, incoming.execution
    FROM incoming
    JOIN cronless.scheduled_job AS job ON job.id = incoming.id AND job.claim_id = incoming.token
    WHERE job.report IS NULL AND (job.status = 'QUEUED' OR job.execution_id = incoming.execution)
    FOR NO KEY UPDATE OF job SKIP LOCKED
), started AS (
    UPDATE cronless.scheduled_job AS job
    SET status = 'RUNNING', attempt = job.attempt + CASE WHEN job.status = 'QUEUED' THEN 1 ELSE 0 END,
        execution_id = free.execution, lease_expires_at = :now + make_interval(secs => :lease_seconds),
        plan_count = job.plan_count + 1
    FROM free
    WHERE job.id = free.id
    RETURNING job.id, job.tenant_id, job.job_type, job.name, CAST(job.payload AS text) AS payload,
              job.schedule, job.timezone, job.dst_policy,
              job.misfire_policy, job.misfire_grace_seconds, job.starts_at, job.ends_at, job.jitter_seconds,
              job.max_attempts, job.retry_delay_seconds, job.retry_max_delay_seconds, job.pause_after,
              job.created_at, job.next_run_at, job.serving_at, job.due_at, job.serving_manual, job.attempt,
              job.consecutive_failures, job.crashes, job.plan_version, job.execution_id, job.claim_id
), unnoted AS MATERIALIZED (
    SELECT claim.id
    FROM cronless.job_claim AS claim
    WHERE claim.id IN (SELECT claim_id FROM started) AND claim.route = 'queue' AND claim.started_at IS NULL
    FOR NO KEY UPDATE OF claim SKIP LOCKED
), noted AS (
    UPDATE cronless.job_claim AS claim SET started_at = :now
    FROM unnoted
    WHERE claim.id = unnoted.id
)
SELECT * FROM started
