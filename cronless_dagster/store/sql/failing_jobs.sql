-- Jobs that failed three and more occurrences in a row, the longest first. The number is a literal, so that the partial
-- index holds just these.
SELECT job.id, job.tenant_id, job.job_type, job.name, job.consecutive_failures AS failures, job.last_error AS error,
       job.last_finished_at AS at, job.paused_at IS NOT NULL AS paused
FROM cronless.scheduled_job AS job
WHERE job.consecutive_failures >= 3
ORDER BY job.consecutive_failures DESC, job.id
LIMIT :most
