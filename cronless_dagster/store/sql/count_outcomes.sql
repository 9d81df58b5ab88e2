-- What finished batches add to their claims' counts; answers the claims that may hold no more rows by now. In the
-- order of the ids, so that workers that finish jobs of the same claims wait for each other and never in a ring.
WITH counted AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:done AS integer[]), CAST(:failed AS integer[]),
                         CAST(:fewer AS integer[])) AS more (id, done, failed, fewer)
)
UPDATE cronless.job_claim AS claim
SET done_count = claim.done_count + counted.done, failed_count = claim.failed_count + counted.failed,
    job_count = greatest(claim.job_count - counted.fewer, 0)
FROM counted
WHERE claim.id = counted.id
RETURNING claim.id, claim.done_count + claim.failed_count >= claim.job_count AS complete
