-- One page of a claim's unstarted rows for its messages, in the order of their ids; no payload, since the start
-- returns it and an edit in between is not lost.
SELECT job.id, job.tenant_id, job.serving_at
FROM cronless.scheduled_job AS job
WHERE job.status IN ('QUEUED', 'RUNNING') AND job.claim_id = :claim_id AND job.id > :after_id
  AND job.status = 'QUEUED'
ORDER BY job.claim_id, job.id
LIMIT :page_size
