-- Rows that never started go back to PENDING as they were: neither attempt nor consecutive_failures moves. A
-- direct edit of the instant meanwhile wins; a manual request is asked for again.
UPDATE cronless.scheduled_job AS job
SET status = 'PENDING', claim_id = NULL, execution_id = NULL, lease_expires_at = NULL,
    next_run_at = CASE WHEN job.serving_manual THEN job.next_run_at
                       ELSE coalesce(job.next_run_at, job.due_at) END,
    scheduled_for = CASE WHEN job.serving_manual OR job.next_run_at IS NOT NULL THEN job.scheduled_for
                         ELSE job.serving_at END,
    trigger_requested_at = CASE WHEN job.serving_manual
                                THEN coalesce(job.trigger_requested_at, job.serving_at)
                                ELSE job.trigger_requested_at END,
    plan_count = job.plan_count + 1
WHERE job.status = 'QUEUED' AND job.claim_id = :claim_id
RETURNING job.id, job.removed_at IS NOT NULL AS removed
