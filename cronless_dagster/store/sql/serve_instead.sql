-- A misfire decision "serve another instant": the claimed row serves it in place of the planned one.
WITH incoming AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:serving_ats AS timestamptz[]), CAST(:attempts AS integer[]))
        AS decision (id, serving_at, attempt)
)
UPDATE cronless.scheduled_job AS job
SET serving_at = incoming.serving_at, attempt = incoming.attempt, plan_count = job.plan_count + 1
FROM incoming
WHERE job.id = incoming.id
