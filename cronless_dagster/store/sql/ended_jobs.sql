-- How many jobs of each type have ended, counted from their own index up to a bound.
SELECT counted.job_type, counted.status, count(*) AS number
FROM (
    (SELECT job.job_type, job.status FROM cronless.scheduled_job AS job WHERE job.status = 'DONE'
     ORDER BY job.status, job.job_type LIMIT :bound)
    UNION ALL
    (SELECT job.job_type, job.status FROM cronless.scheduled_job AS job WHERE job.status = 'FAILED'
     ORDER BY job.status, job.job_type LIMIT :bound)) AS counted
GROUP BY counted.job_type, counted.status
