-- How many due rows each given tenant has, counted up to a bound of its own: together about one batch of index
-- entries, and no row of the table where vacuum has been by.
SELECT tenant.id AS tenant_id, counted.due
FROM unnest(CAST(:tenants AS text[]), CAST(:bounds AS bigint[])) AS tenant (id, bound)
CROSS JOIN LATERAL (
    SELECT count(*) AS due FROM (
        SELECT 1 FROM cronless.scheduled_job AS job
        WHERE job.status = 'PENDING' AND job.paused_at IS NULL
          AND job.job_type = :job_type AND job.tenant_id = tenant.id
          AND job.next_run_at <= :now AND job.id BETWEEN :id_low AND :id_high
        ORDER BY job.job_type, job.tenant_id, job.next_run_at
        LIMIT tenant.bound) AS one) AS counted
