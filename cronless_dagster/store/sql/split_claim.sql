-- A claim whose holder died is cut in groups, each a claim of its own, so that a job that kills its holder
-- takes fewer and fewer neighbours along. Rows keep the occurrence they serve.
WITH unfinished AS MATERIALIZED (
    SELECT job.id, ((row_number() OVER (ORDER BY job.id) - 1) / :group_size) AS part
    FROM cronless.scheduled_job AS job
    WHERE job.status = 'QUEUED' AND job.claim_id = :claim_id
), parts AS MATERIALIZED (
    SELECT part, gen_random_uuid() AS id, count(*) AS job_count FROM unfinished GROUP BY part
), children AS (
    INSERT INTO cronless.job_claim
        (id, job_type, route, id_low, manual, parent_id, job_count, lease_seconds, lease_expires_at,
         oldest_due_at, created_at, alone)
    SELECT parts.id, dead.job_type, dead.route, dead.id_low, dead.manual, dead.id, parts.job_count,
           dead.lease_seconds, :now + make_interval(secs => dead.lease_seconds), dead.oldest_due_at, :now,
           dead.route = 'queue' AND parts.job_count = 1
    FROM parts CROSS JOIN cronless.job_claim AS dead
    WHERE dead.id = :claim_id
), moved AS (
    UPDATE cronless.scheduled_job AS job
    SET claim_id = parts.id, plan_count = job.plan_count + 1
    FROM unfinished JOIN parts USING (part)
    WHERE job.id = unfinished.id
    RETURNING 1
)
SELECT count(*) FROM moved
