-- The rows just claimed in this transaction that were past their misfire grace.
SELECT job.id, job.tenant_id, job.job_type, job.name, job.schedule, job.timezone, job.dst_policy,
       job.misfire_policy, job.misfire_grace_seconds, job.starts_at, job.ends_at, job.jitter_seconds,
       job.max_attempts, job.retry_delay_seconds, job.retry_max_delay_seconds, job.pause_after,
       job.created_at, job.due_at AS next_run_at, job.serving_at AS scheduled_for, job.attempt,
       job.consecutive_failures, job.plan_version
FROM cronless.scheduled_job AS job
WHERE job.id = ANY (CAST(:ids AS uuid[]))
