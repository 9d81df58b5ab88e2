-- Jobs whose workers have reported an outcome and left the planning to a tick, for which nobody needs the payload.
SELECT job.id, job.tenant_id, job.job_type, job.name, '{}' AS payload, job.schedule, job.timezone, job.dst_policy,
       job.misfire_policy, job.misfire_grace_seconds, job.starts_at, job.ends_at, job.jitter_seconds,
       job.max_attempts, job.retry_delay_seconds, job.retry_max_delay_seconds, job.pause_after,
       job.created_at, job.next_run_at, job.serving_at, job.due_at, job.serving_manual, job.attempt,
       job.consecutive_failures, job.crashes, job.plan_version, job.execution_id, job.report, job.claim_id
FROM cronless.scheduled_job AS job
WHERE job.report IS NOT NULL AND job.id BETWEEN :id_low AND :id_high
ORDER BY job.id
LIMIT :batch_size
FOR UPDATE SKIP LOCKED
