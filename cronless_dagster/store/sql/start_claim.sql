-- The start fence of a claim on the run route. The same execution asking again is answered alike; another
-- one is refused until the claim was handed over anew.
UPDATE cronless.job_claim AS claim
SET state = 'RUNNING', execution_id = :execution_id, run_id = :run_id,
    started_at = coalesce(claim.started_at, :now),
    lease_expires_at = :now + make_interval(secs => claim.lease_seconds)
WHERE claim.id = :claim_id
  AND (claim.state IN ('CLAIMED', 'SUBMITTED')
       OR (claim.state = 'RUNNING' AND claim.execution_id = :execution_id))
RETURNING claim.id, claim.job_type, claim.route, claim.id_low, claim.manual, claim.job_count, claim.done_count,
          claim.failed_count, claim.state, claim.dispatches, claim.run_id, claim.execution_id,
          claim.lease_seconds, claim.lease_expires_at, claim.oldest_due_at, claim.handed_over_at,
          claim.created_at, claim.started_at, claim.parent_id, claim.alone
