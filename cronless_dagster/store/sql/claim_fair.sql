-- Claim at most a share of each given tenant's due rows. Each tenant's rows are locked where its index range is
-- walked, once for each tenant: a window function over all that is due could not be combined with FOR UPDATE.
-- A row that another dispatcher took in between is passed over, and one that changed is at another address.
WITH taken AS (
    UPDATE cronless.scheduled_job AS job
    SET status = 'QUEUED', claim_id = :claim_id,
        serving_at = coalesce(job.scheduled_for, job.next_run_at), due_at = job.next_run_at,
        serving_manual = false, next_run_at = NULL, plan_count = job.plan_count + 1
    WHERE job.ctid = ANY (ARRAY(
        SELECT picked.ctid
        FROM unnest(CAST(:tenants AS text[]), CAST(:shares AS bigint[])) AS tenant (id, share)
        CROSS JOIN LATERAL (
            SELECT due.ctid FROM cronless.scheduled_job AS due
            WHERE due.status = 'PENDING' AND due.paused_at IS NULL
              AND due.job_type = :job_type AND due.tenant_id = tenant.id
              AND due.next_run_at <= :now AND due.id BETWEEN :id_low AND :id_high
            ORDER BY due.job_type, due.tenant_id, due.next_run_at
            LIMIT tenant.share
            FOR UPDATE SKIP LOCKED) AS picked
        LIMIT :batch_size))
    RETURNING job.id, job.due_at, job.misfire_grace_seconds
), claimed AS (
    INSERT INTO cronless.job_claim
        (id, job_type, route, id_low, job_count, lease_seconds, lease_expires_at, oldest_due_at, created_at)
    SELECT :claim_id, :job_type, :route, :id_low, count(*), :lease_seconds,
           :now + make_interval(secs => :lease_seconds), min(due_at), :now
    FROM taken HAVING count(*) > 0
)
SELECT count(*) AS claimed,
       array_agg(id) FILTER (WHERE due_at + make_interval(secs => misfire_grace_seconds) < :now) AS misfired
FROM taken
