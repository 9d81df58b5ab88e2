-- The rows of a finished batch that are still their claims' and that nobody else holds, locked until the finish
-- commits. Skipping is what keeps a person's long transaction on one row from holding up its neighbours' results, and
-- what never waits can't be part of a deadlock. FOR UPDATE, since a tombstone is deleted in the same transaction.
-- The claim comes beside each id: given alone it would look like the way to the one row that the planner expects.
WITH finished AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:claim_ids AS uuid[])) AS given (id, claim_id)
)
SELECT job.id
FROM finished
JOIN cronless.scheduled_job AS job ON job.id = finished.id AND job.claim_id = finished.claim_id
FOR UPDATE OF job SKIP LOCKED
