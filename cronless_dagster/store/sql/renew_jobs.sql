-- Lease renewal of many started jobs; answers the ids that are still the caller's. A row that somebody has locked is
-- left for the next renewal: it can't be taken from its holder meanwhile either. Only a RUNNING row has an execution's id:
-- the state as a condition would make the index of claimed rows look like the way to the one row that the planner expects.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:claim_ids AS uuid[]), CAST(:execution_ids AS uuid[]))
        AS held (id, claim_id, execution_id)
), free AS MATERIALIZED (
    SELECT job.id
    FROM given
    JOIN cronless.scheduled_job AS job ON job.id = given.id AND job.claim_id = given.claim_id
    WHERE job.execution_id = given.execution_id
    FOR NO KEY UPDATE OF job SKIP LOCKED
), renewed AS (
    UPDATE cronless.scheduled_job AS job
    SET lease_expires_at = :now + make_interval(secs => :lease_seconds), plan_count = job.plan_count + 1
    FROM free
    WHERE job.id = free.id
)
SELECT job.id
FROM given
JOIN cronless.scheduled_job AS job ON job.id = given.id AND job.claim_id = given.claim_id
WHERE job.execution_id = given.execution_id
