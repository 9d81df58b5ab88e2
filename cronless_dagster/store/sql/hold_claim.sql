-- Lease renewal, and the fence of every finish: zero rows mean that the claim was lost. The row stays locked
-- until the finish commits, so a rescue can't come in between.
UPDATE cronless.job_claim AS claim
SET lease_expires_at = :now + make_interval(secs => claim.lease_seconds),
    done_count = claim.done_count + :done, failed_count = claim.failed_count + :failed
WHERE claim.id = :claim_id AND claim.state = 'RUNNING' AND claim.execution_id = :execution_id
