-- Rows of the claim that this transaction made leave it again as they were: the tick's time was up before their
-- misfires were decided.
UPDATE cronless.scheduled_job AS job
SET status = 'PENDING', claim_id = NULL, next_run_at = job.due_at, scheduled_for = job.serving_at,
    plan_count = job.plan_count + 1
WHERE job.id = ANY (CAST(:ids AS uuid[]))
