-- A job that died alone bears the crash. Below the limit it is claimed alone again by the caller's split;
-- at the limit the row is INVALID and out of everybody's way. The try was counted already where jobs are started one
-- by one.
WITH crashed AS (
    UPDATE cronless.scheduled_job AS job
    SET crashes = job.crashes + 1, attempt = job.attempt + CASE WHEN job.serving_manual OR :counted THEN 0 ELSE 1 END,
        last_outcome = 'crashed', last_error = :error, last_finished_at = :now,
        status = CASE WHEN job.crashes + 1 >= :max_crashes THEN 'INVALID' ELSE job.status END,
        claim_id = CASE WHEN job.crashes + 1 >= :max_crashes THEN NULL ELSE job.claim_id END,
        invalid_reason = CASE WHEN job.crashes + 1 >= :max_crashes
                              THEN 'kills its worker: ' || (job.crashes + 1) || ' holders died with this job alone'
                         END,
        plan_count = job.plan_count + 1
    WHERE job.status = 'QUEUED' AND job.claim_id = :claim_id
    RETURNING job.id, job.tenant_id, job.job_type, job.serving_at, job.due_at, job.serving_manual, job.attempt,
              job.status, job.removed_at
), history AS (
    INSERT INTO cronless.job_execution
        (recorded_at, job_id, tenant_id, job_type, outcome, scheduled_for, due_at, attempt, manual, claim_id,
         execution_id, run_id, error)
    SELECT :now, id, tenant_id, job_type, 'crashed', serving_at, due_at, attempt, serving_manual, :claim_id,
           CAST(:execution_id AS uuid), :run_id, :error
    FROM crashed
)
SELECT id, status, removed_at IS NOT NULL AS removed FROM crashed
