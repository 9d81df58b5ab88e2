-- All claims that aren't closed; their number is bounded by the job types' limits, not by the table.
SELECT claim.id, claim.job_type, claim.route, claim.id_low, claim.manual, claim.job_count, claim.done_count,
       claim.failed_count, claim.state, claim.dispatches, claim.run_id, claim.execution_id, claim.lease_seconds,
       claim.lease_expires_at, claim.oldest_due_at, claim.handed_over_at, claim.created_at, claim.started_at,
       claim.parent_id, claim.alone
FROM cronless.job_claim AS claim
WHERE claim.state IN ('CLAIMED', 'SUBMITTED', 'RUNNING')
ORDER BY claim.created_at, claim.id
