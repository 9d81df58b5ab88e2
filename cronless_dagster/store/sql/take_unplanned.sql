-- Lock a batch of rows that have no instant yet (new, edited, resumed) so that two planners share the work.
-- One that has run and was asked to run again is served first: its plan may be that nothing follows.
SELECT job.id, job.tenant_id, job.job_type, job.name, job.schedule, job.timezone, job.dst_policy,
       job.misfire_policy, job.misfire_grace_seconds, job.starts_at, job.ends_at, job.jitter_seconds,
       job.max_attempts, job.retry_delay_seconds, job.retry_max_delay_seconds, job.pause_after,
       job.created_at, job.next_run_at, job.scheduled_for, job.attempt, job.consecutive_failures,
       job.plan_version, job.serving_at, job.last_finished_at, job.last_outcome
FROM cronless.scheduled_job AS job
WHERE job.status = 'PENDING' AND job.next_run_at IS NULL AND job.paused_at IS NULL
  AND (job.trigger_requested_at IS NULL OR job.last_finished_at IS NULL
       OR job.trigger_requested_at > cronless.clock_now())
  AND job.id BETWEEN :id_low AND :id_high
ORDER BY job.id
LIMIT :batch_size
FOR UPDATE SKIP LOCKED
