-- What the history says since an instant, by job type and of the tenants that failed most; how late what was started
-- since a later instant was. The index on recorded_at holds a range of each 128 pages and finds the end of the day's
-- partition; a bound keeps a very busy hour from costing more.
WITH recent AS MATERIALIZED (
    SELECT execution.job_type, execution.tenant_id,
           CASE WHEN execution.outcome IN ('success', 'failure', 'exhausted', 'superseded', 'crashed') THEN 1 ELSE 0 END
               AS tried,
           CASE WHEN execution.outcome IN ('failure', 'exhausted', 'superseded', 'crashed') THEN 1 ELSE 0 END AS failed,
           coalesce(execution.missed_count, 0) AS missed,
           CASE WHEN execution.started_at > :started_since THEN greatest(CAST(
               extract(epoch FROM execution.started_at - execution.due_at) AS double precision), 0) END AS lateness
    FROM cronless.job_execution AS execution
    WHERE execution.recorded_at > :since AND execution.recorded_at <= :now
    LIMIT :bound
)
SELECT CASE WHEN grouping(job_type) = 1 THEN 'all' ELSE 'type' END AS kind, job_type AS name, count(*) AS number,
       coalesce(sum(tried), 0) AS tried, coalesce(sum(failed), 0) AS failed, coalesce(sum(missed), 0) AS missed,
       count(lateness) AS started, percentile_disc(0.5) WITHIN GROUP (ORDER BY lateness) AS p50,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY lateness) AS p95, max(lateness) AS longest
FROM recent GROUP BY ROLLUP (job_type)
UNION ALL
(SELECT 'tenant', tenant_id, count(*), sum(tried), sum(failed), sum(missed), count(lateness), NULL, NULL, max(lateness)
 FROM recent GROUP BY tenant_id HAVING sum(failed) + sum(missed) > 0
 ORDER BY sum(failed) DESC, sum(missed) DESC, tenant_id LIMIT :tenants)
