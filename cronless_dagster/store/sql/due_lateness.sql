-- How late what is due is, of each given job type and of the tenants with the oldest: one walk of the due index, which
-- stops at its bound in each type, so that a backlog costs a bounded time; the longest due are those that are seen.
WITH due AS MATERIALIZED (
    SELECT asked.name AS job_type, waiting.tenant_id,
           CAST(extract(epoch FROM CAST(:now AS timestamptz) - waiting.next_run_at) AS double precision) AS lateness
    FROM unnest(CAST(:names AS text[])) AS asked (name)
    CROSS JOIN LATERAL (
        SELECT job.tenant_id, job.next_run_at FROM cronless.scheduled_job AS job
        WHERE job.status = 'PENDING' AND job.paused_at IS NULL
          AND job.job_type = asked.name AND job.next_run_at <= :now
        ORDER BY job.job_type, job.next_run_at, job.id LIMIT :bound) AS waiting
)
SELECT CASE WHEN grouping(job_type) = 1 THEN 'all' ELSE 'type' END AS kind, job_type AS name, count(*) AS number,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY lateness) AS p50,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY lateness) AS p95, max(lateness) AS longest
FROM due GROUP BY ROLLUP (job_type)
UNION ALL
(SELECT 'tenant', tenant_id, count(*), NULL, NULL, max(lateness) AS longest
 FROM due GROUP BY tenant_id ORDER BY longest DESC, tenant_id LIMIT :tenants)
