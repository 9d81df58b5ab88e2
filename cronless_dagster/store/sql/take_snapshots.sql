-- Writes the snapshots of a window: counts that the caller brings, and what the history says of the window before. The
-- index on recorded_at finds the quarter within its day's partition; bounds keep a very busy one from costing more.
WITH counted AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:names AS text[]), CAST(:due AS integer[]), CAST(:late AS integer[]),
                         CAST(:running AS integer[]), CAST(:stuck AS integer[]))
        AS given (job_type, due, late, running, stuck)
), recent AS MATERIALIZED (
    SELECT execution.job_type, execution.outcome, coalesce(execution.missed_count, 1) AS number,
           greatest(CAST(extract(epoch FROM execution.started_at - execution.due_at) AS double precision), 0)
               AS lateness,
           execution.started_at IS NOT NULL AND execution.due_at IS NOT NULL AS started
    FROM cronless.job_execution AS execution
    WHERE execution.recorded_at >= :since AND execution.recorded_at < :window
      AND execution.job_type = ANY (CAST(:names AS text[]))
    LIMIT :bound
), lateness AS (
    SELECT job_type, percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY lateness) AS seconds
    FROM recent WHERE started GROUP BY job_type
), ended AS (
    SELECT job_type, jsonb_object_agg(outcome, number) AS outcomes
    FROM (SELECT job_type, outcome, sum(number) AS number FROM recent GROUP BY job_type, outcome) AS by_outcome
    GROUP BY job_type
), failing AS (
    SELECT job_type, count(*) AS number
    FROM (SELECT job.job_type FROM cronless.scheduled_job AS job WHERE job.consecutive_failures >= 3
          ORDER BY job.consecutive_failures DESC, job.id LIMIT :failing_bound) AS longest
    GROUP BY job_type
)
INSERT INTO cronless.health_snapshot
    (window_start, job_type, taken_at, due, late, running, stuck, failing, lateness_p50, lateness_p95, lateness_p99,
     outcomes)
SELECT :window, counted.job_type, :now, counted.due, counted.late, counted.running, counted.stuck,
       coalesce(failing.number, 0), lateness.seconds[1], lateness.seconds[2], lateness.seconds[3],
       coalesce(ended.outcomes, '{}')
FROM counted
LEFT JOIN failing USING (job_type) LEFT JOIN lateness USING (job_type) LEFT JOIN ended USING (job_type)
ON CONFLICT DO NOTHING
