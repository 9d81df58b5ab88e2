-- Removes jobs that ended before an instant and that nobody has changed since, the longest ended first. One that never
-- ran has no end noted, and stays. The history of what is removed has its own retention.
DELETE FROM cronless.scheduled_job
WHERE ctid = ANY (ARRAY(
    SELECT job.ctid FROM cronless.scheduled_job AS job
    WHERE job.status IN ('DONE', 'FAILED') AND job.last_finished_at < :before AND job.updated_at < :before
      AND job.id BETWEEN :id_low AND :id_high
    ORDER BY job.last_finished_at, job.id LIMIT :most FOR UPDATE SKIP LOCKED))
