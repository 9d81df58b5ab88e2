-- Claim rows that a person asked to run now, paused ones too. A manual run is an occurrence of its own: the
-- planned instant stays in next_run_at.
WITH taken AS (
    UPDATE cronless.scheduled_job AS job
    SET status = 'QUEUED', claim_id = :claim_id,
        serving_at = job.trigger_requested_at, due_at = job.trigger_requested_at,
        serving_manual = true, trigger_requested_at = NULL, plan_count = job.plan_count + 1
    WHERE job.ctid = ANY (ARRAY(
        SELECT due.ctid FROM cronless.scheduled_job AS due
        WHERE due.status = 'PENDING' AND due.trigger_requested_at IS NOT NULL
          AND due.job_type = :job_type AND due.trigger_requested_at <= :now
          AND due.id BETWEEN :id_low AND :id_high
        ORDER BY due.job_type, due.trigger_requested_at, due.id
        LIMIT :batch_size
        FOR UPDATE SKIP LOCKED))
    RETURNING job.id, job.due_at
), claimed AS (
    INSERT INTO cronless.job_claim
        (id, job_type, route, id_low, manual, job_count, lease_seconds, lease_expires_at, oldest_due_at,
         created_at)
    SELECT :claim_id, :job_type, :route, :id_low, true, count(*), :lease_seconds,
           :now + make_interval(secs => :lease_seconds), min(due_at), :now
    FROM taken HAVING count(*) > 0
)
SELECT count(*) AS claimed, CAST(NULL AS uuid[]) AS misfired FROM taken
