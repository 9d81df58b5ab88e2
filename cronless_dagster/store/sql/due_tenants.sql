-- The next tenants with a due row, in the order of their names from the cursor on: a loose index scan, one
-- probe a tenant. A tenant is judged by its longest due row in the shard's range. Ends after enough due tenants
-- or after scan_limit tenants of any kind, and in the second half of a round where the first one began: names
-- are compared here alone, by the database's own order.
WITH RECURSIVE tenant AS (
    (SELECT first.tenant_id, first.next_run_at, 1 AS scanned,
            CASE WHEN first.next_run_at <= :now THEN 1 ELSE 0 END AS found
     FROM cronless.scheduled_job AS first
     WHERE first.status = 'PENDING' AND first.paused_at IS NULL
       AND first.job_type = :job_type AND first.tenant_id > :cursor AND first.next_run_at IS NOT NULL
       AND first.id BETWEEN :id_low AND :id_high
     ORDER BY first.job_type, first.tenant_id, first.next_run_at
     LIMIT 1)
    UNION ALL
    SELECT following.tenant_id, following.next_run_at, tenant.scanned + 1,
           tenant.found + CASE WHEN following.next_run_at <= :now THEN 1 ELSE 0 END
    FROM tenant
    CROSS JOIN LATERAL (
        SELECT job.tenant_id, job.next_run_at
        FROM cronless.scheduled_job AS job
        WHERE job.status = 'PENDING' AND job.paused_at IS NULL
          AND job.job_type = :job_type AND job.tenant_id > tenant.tenant_id AND job.next_run_at IS NOT NULL
          AND job.id BETWEEN :id_low AND :id_high
        ORDER BY job.job_type, job.tenant_id, job.next_run_at
        LIMIT 1) AS following
    WHERE tenant.scanned < :scan_limit AND tenant.found < :wanted
      AND (CAST(:until AS text) IS NULL OR tenant.tenant_id < :until)
)
SELECT tenant_id, next_run_at <= :now AS due, coalesce(tenant_id > :until, false) AS seen FROM tenant
