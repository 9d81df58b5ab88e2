-- How many jobs of each given type become due in each minute until an instant; NULL stands for all that lie beyond.
-- One walk of the due index, without a row of the table where vacuum has been by, that stops at its bound in each type.
SELECT asked.name AS job_type, ahead.minute, ahead.number
FROM unnest(CAST(:names AS text[])) AS asked (name)
CROSS JOIN LATERAL (
    SELECT date_bin('1 minute', CASE WHEN next_run_at < :until THEN next_run_at END, CAST(:epoch AS timestamptz))
               AS minute,
           count(*) AS number
    FROM (
        SELECT job.next_run_at FROM cronless.scheduled_job AS job
        WHERE job.status = 'PENDING' AND job.paused_at IS NULL
          AND job.job_type = asked.name AND job.next_run_at > :now
        ORDER BY job.job_type, job.next_run_at, job.id LIMIT :bound) AS planned
    GROUP BY 1) AS ahead
