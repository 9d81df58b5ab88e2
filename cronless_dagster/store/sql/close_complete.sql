-- Close those of the claims that hold no more rows; the probe stops at the first row.
UPDATE cronless.job_claim AS claim
SET state = 'CLOSED', closed_at = :now, close_reason = 'done'
WHERE claim.id = ANY (CAST(:ids AS uuid[])) AND claim.state IN ('CLAIMED', 'SUBMITTED', 'RUNNING')
  AND NOT EXISTS (SELECT 1 FROM cronless.scheduled_job AS job
                  WHERE job.status IN ('QUEUED', 'RUNNING') AND job.claim_id = claim.id)
