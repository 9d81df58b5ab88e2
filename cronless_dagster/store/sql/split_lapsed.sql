-- Started jobs whose holder's lease ran out, each into a claim of its own, to be published anew and run alone:
-- which of them killed the holder can't be seen from here, and a job that kills again takes nobody along.
WITH lapsed AS MATERIALIZED (
    SELECT job.id, gen_random_uuid() AS claim_id
    FROM cronless.scheduled_job AS job
    WHERE job.status IN ('QUEUED', 'RUNNING') AND job.claim_id = :claim_id
      AND job.status = 'RUNNING' AND job.report IS NULL AND job.lease_expires_at < :now
    FOR NO KEY UPDATE OF job SKIP LOCKED
), children AS (
    INSERT INTO cronless.job_claim
        (id, job_type, route, id_low, manual, parent_id, job_count, lease_seconds, lease_expires_at,
         oldest_due_at, created_at)
    SELECT lapsed.claim_id, dead.job_type, dead.route, dead.id_low, dead.manual, dead.id, 1,
           dead.lease_seconds, :now + make_interval(secs => dead.lease_seconds), dead.oldest_due_at, :now
    FROM lapsed CROSS JOIN cronless.job_claim AS dead
    WHERE dead.id = :claim_id
), moved AS (
    UPDATE cronless.scheduled_job AS job
    SET status = 'QUEUED', claim_id = lapsed.claim_id, execution_id = NULL, lease_expires_at = NULL,
        plan_count = job.plan_count + 1
    FROM lapsed
    WHERE job.id = lapsed.id
    RETURNING 1
)
SELECT count(*) FROM moved
