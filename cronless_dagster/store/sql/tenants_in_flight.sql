-- How many rows each tenant has claimed of one job type: asked only for types with a limit per tenant.
SELECT job.tenant_id, count(*) AS in_flight
FROM cronless.scheduled_job AS job
WHERE job.status IN ('QUEUED', 'RUNNING') AND job.job_type = :job_type
  AND job.claim_id IN (SELECT claim.id FROM cronless.job_claim AS claim
                       WHERE claim.state IN ('CLAIMED', 'SUBMITTED', 'RUNNING') AND claim.job_type = :job_type)
GROUP BY job.tenant_id
