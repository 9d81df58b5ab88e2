-- Claims with jobs whose lease ran out before an instant and that nobody has rescued since. On the run route a claim's
-- lease is that of all its jobs, once a run holds it: one that waits in Dagster's run queue is late, not stuck. On the
-- queue route each started job has a lease, and a backlog has none. The cost
-- follows what is in flight, not the table.
SELECT claim.id, claim.job_type, claim.route, claim.state, claim.run_id,
       claim.job_count - claim.done_count - claim.failed_count AS jobs, claim.lease_expires_at AS since
FROM cronless.job_claim AS claim
WHERE claim.state IN ('CLAIMED', 'SUBMITTED', 'RUNNING') AND claim.route <> 'queue'
  AND (claim.state = 'RUNNING' OR claim.route = 'local')
  AND claim.lease_expires_at < :before AND claim.job_count > claim.done_count + claim.failed_count
UNION ALL
SELECT claim.id, claim.job_type, claim.route, claim.state, claim.run_id, lapsed.jobs, lapsed.since
FROM cronless.job_claim AS claim
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(job.lease_expires_at) AS since
    FROM cronless.scheduled_job AS job
    WHERE job.status = 'RUNNING' AND job.claim_id = claim.id AND job.report IS NULL
      AND job.lease_expires_at < :before) AS lapsed
WHERE claim.state IN ('CLAIMED', 'SUBMITTED', 'RUNNING') AND claim.route = 'queue' AND lapsed.jobs > 0
ORDER BY since, id
