-- Claim the longest due rows of one job type and write their claim, in one statement.
-- The row addresses come from an ARRAY so that LIMIT runs once: in `IN (SELECT … LIMIT … SKIP LOCKED)` the
-- planner may run the inner query again and take more than LIMIT rows. A row that changed while its lock
-- was awaited is at another address and is simply left for the next claim.
-- Answers how many, and the ids of those past their misfire grace, which the caller decides at once.
WITH taken AS (
    UPDATE cronless.scheduled_job AS job
    SET status = 'QUEUED', claim_id = :claim_id,
        serving_at = coalesce(job.scheduled_for, job.next_run_at), due_at = job.next_run_at,
        serving_manual = false, next_run_at = NULL, plan_count = job.plan_count + 1
    WHERE job.ctid = ANY (ARRAY(
        SELECT due.ctid FROM cronless.scheduled_job AS due
        WHERE due.status = 'PENDING' AND due.paused_at IS NULL
          AND due.job_type = :job_type AND due.next_run_at <= :now
          AND due.id BETWEEN :id_low AND :id_high
        ORDER BY due.job_type, due.next_run_at, due.id
        LIMIT :batch_size
        FOR UPDATE SKIP LOCKED))
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
