-- One page of a claim's unfinished rows, in the order of their ids. Tombstones are served too: their
-- occurrence was claimed before the removal. The payload comes as text, since one that can't be read must not keep the
-- others from being read.
SELECT job.id, job.tenant_id, job.job_type, job.name, CAST(job.payload AS text) AS payload,
       job.schedule, job.timezone, job.dst_policy,
       job.misfire_policy, job.misfire_grace_seconds, job.starts_at, job.ends_at, job.jitter_seconds,
       job.max_attempts, job.retry_delay_seconds, job.retry_max_delay_seconds, job.pause_after,
       job.created_at, job.next_run_at, job.serving_at, job.due_at, job.serving_manual, job.attempt,
       job.consecutive_failures, job.crashes, job.plan_version, job.execution_id, job.report
FROM cronless.scheduled_job AS job
WHERE job.status IN ('QUEUED', 'RUNNING') AND job.claim_id = :claim_id AND job.id > :after_id
ORDER BY job.claim_id, job.id
LIMIT :page_size
