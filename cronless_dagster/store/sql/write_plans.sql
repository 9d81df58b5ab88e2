-- Write the plans of rows that this transaction has locked (so nothing about them can have changed).
WITH incoming AS MATERIALIZED (
    SELECT * FROM unnest(
        CAST(:ids AS uuid[]), CAST(:statuses AS text[]), CAST(:next_run_ats AS timestamptz[]),
        CAST(:scheduled_fors AS timestamptz[]), CAST(:attempts AS integer[]), CAST(:reasons AS text[]))
        AS plan (id, status, next_run_at, scheduled_for, attempt, reason)
)
UPDATE cronless.scheduled_job AS job
SET status = incoming.status, next_run_at = incoming.next_run_at, scheduled_for = incoming.scheduled_for,
    invalid_reason = CASE WHEN incoming.status = 'INVALID' THEN incoming.reason END,
    tzdata_version = :tzdata_version, attempt = incoming.attempt, plan_count = job.plan_count + 1
FROM incoming
WHERE job.id = incoming.id
