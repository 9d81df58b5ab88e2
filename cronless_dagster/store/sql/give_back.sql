-- Started jobs whose handler was never called go back to PENDING as they were: the try did not happen. A direct edit
-- of the instant meanwhile wins; a manual request is asked for again. As in a release, but by the holder itself.
-- Only a RUNNING row has an execution's id; as in a renewal the state is no condition.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:claim_ids AS uuid[]), CAST(:execution_ids AS uuid[]))
        AS held (id, claim_id, execution_id)
), free AS MATERIALIZED (
    SELECT job.id, job.claim_id
    FROM given
    JOIN cronless.scheduled_job AS job ON job.id = given.id AND job.claim_id = given.claim_id
    WHERE job.execution_id = given.execution_id AND job.report IS NULL
    FOR UPDATE OF job SKIP LOCKED
)
UPDATE cronless.scheduled_job AS job
SET status = 'PENDING', claim_id = NULL, execution_id = NULL, lease_expires_at = NULL,
    attempt = greatest(job.attempt - 1, 0),
    next_run_at = CASE WHEN job.serving_manual THEN job.next_run_at
                       ELSE coalesce(job.next_run_at, job.due_at) END,
    scheduled_for = CASE WHEN job.serving_manual OR job.next_run_at IS NOT NULL THEN job.scheduled_for
                         ELSE job.serving_at END,
    trigger_requested_at = CASE WHEN job.serving_manual
                                THEN coalesce(job.trigger_requested_at, job.serving_at)
                                ELSE job.trigger_requested_at END,
    plan_count = job.plan_count + 1
FROM free
WHERE job.id = free.id
RETURNING job.id, free.claim_id, job.removed_at IS NOT NULL AS removed
