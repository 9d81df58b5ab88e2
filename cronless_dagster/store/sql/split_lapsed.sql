-- Started jobs whose holder's lease ran out, cut in groups, each a claim of its own, to be published anew: which of them
-- killed the holder can't be seen from here. The only one of a group runs alone, and if it kills again takes nobody along.
-- A manual run leaves the planned occurrence's tries as they were.
WITH lapsed AS MATERIALIZED (
    SELECT job.id, gen_random_uuid() AS fresh
    FROM cronless.scheduled_job AS job
    WHERE job.status IN ('QUEUED', 'RUNNING') AND job.claim_id = :claim_id
      AND job.status = 'RUNNING' AND job.report IS NULL AND job.lease_expires_at < :now
    FOR NO KEY UPDATE OF job SKIP LOCKED
), numbered AS (
    SELECT id, fresh, (row_number() OVER (ORDER BY id) - 1) / :group_size AS part FROM lapsed
), grouped AS MATERIALIZED (
    -- Not joined to a list of the groups: with as many groups as rows that would scan the one for each of the other.
    SELECT id, first_value(fresh) OVER (PARTITION BY part ORDER BY id) AS claim_id FROM numbered
), parts AS (
    SELECT claim_id, count(*) AS job_count FROM grouped GROUP BY claim_id
), children AS (
    INSERT INTO cronless.job_claim
        (id, job_type, route, id_low, manual, parent_id, job_count, lease_seconds, lease_expires_at,
         oldest_due_at, created_at, alone)
    SELECT parts.claim_id, dead.job_type, dead.route, dead.id_low, dead.manual, dead.id, parts.job_count,
           dead.lease_seconds, :now + make_interval(secs => dead.lease_seconds), dead.oldest_due_at, :now,
           parts.job_count = 1
    FROM parts CROSS JOIN cronless.job_claim AS dead
    WHERE dead.id = :claim_id
), moved AS (
    UPDATE cronless.scheduled_job AS job
    SET status = 'QUEUED', claim_id = grouped.claim_id, execution_id = NULL, lease_expires_at = NULL,
        attempt = greatest(job.attempt - CASE WHEN job.serving_manual THEN 1 ELSE 0 END, 0),
        plan_count = job.plan_count + 1
    FROM grouped
    WHERE job.id = grouped.id
    RETURNING 1
)
SELECT count(*) FROM moved
