-- The finish fence and the next plan of a batch, with its history, in one statement.
-- The join is driven by the array (see database.drive_by_array): by the token alone the planner would expect
-- one row and nest a scan of the array. A row belongs to the caller where claim and execution are still the
-- current ones. One whose plan_version moved was edited meanwhile: it keeps a direct write of the instant, else
-- waits for its plan with what the planner needs: a retry, a handler's word, what was missed by now. One that
-- has ended stays PENDING while a person's request waits. A manual run leaves the plan as it is.
-- serving_at and due_at stay as the last occurrence's; they mean something only beside a claim.
WITH incoming AS MATERIALIZED (
    SELECT * FROM unnest(
        CAST(:ids AS uuid[]), CAST(:claim_ids AS uuid[]), CAST(:execution_ids AS uuid[]),
        CAST(:plan_versions AS bigint[]), CAST(:outcomes AS text[]), CAST(:errors AS text[]),
        CAST(:statuses AS text[]), CAST(:next_run_ats AS timestamptz[]), CAST(:scheduled_fors AS timestamptz[]),
        CAST(:attempts AS integer[]), CAST(:failures AS integer[]), CAST(:pause_reasons AS text[]),
        CAST(:reasons AS text[]), CAST(:tries AS integer[]), CAST(:started_ats AS timestamptz[]))
        AS result (id, claim_id, execution_id, plan_version, outcome, error, status, next_run_at, scheduled_for,
                   attempt, failures, pause_reason, reason, tries, started_at)
), finished AS (
    UPDATE cronless.scheduled_job AS job
    SET status = CASE WHEN job.plan_version <> incoming.plan_version THEN 'PENDING'
                      WHEN job.serving_manual AND (job.next_run_at IS NOT NULL OR incoming.status = 'INVALID')
                      THEN 'PENDING'
                      WHEN job.trigger_requested_at IS NOT NULL AND incoming.status IN ('DONE', 'FAILED')
                      THEN 'PENDING'
                      ELSE incoming.status END,
        next_run_at = CASE WHEN job.serving_manual OR job.plan_version <> incoming.plan_version
                           THEN job.next_run_at ELSE incoming.next_run_at END,
        scheduled_for = CASE WHEN job.serving_manual THEN job.scheduled_for
                             WHEN job.plan_version = incoming.plan_version THEN incoming.scheduled_for
                             WHEN job.next_run_at IS NOT NULL THEN job.scheduled_for
                             WHEN incoming.scheduled_for <= :now OR job.schedule ~* '^\s*@handler'
                             THEN incoming.scheduled_for END,
        attempt = CASE WHEN job.serving_manual
                       THEN greatest(job.attempt - CASE WHEN job.status = 'RUNNING' THEN 1 ELSE 0 END, 0)
                       WHEN job.plan_version = incoming.plan_version OR job.next_run_at IS NULL
                       THEN incoming.attempt ELSE 0 END,
        consecutive_failures = CASE WHEN job.serving_manual THEN job.consecutive_failures
                                    WHEN job.plan_version = incoming.plan_version THEN incoming.failures
                                    WHEN incoming.outcome = 'success' THEN 0
                                    WHEN incoming.outcome IN ('exhausted', 'superseded')
                                    THEN job.consecutive_failures + 1
                                    ELSE job.consecutive_failures END,
        paused_at = CASE WHEN job.paused_at IS NULL AND incoming.pause_reason IS NOT NULL
                          AND NOT job.serving_manual AND job.plan_version = incoming.plan_version
                         THEN :now ELSE job.paused_at END,
        pause_reason = CASE WHEN job.paused_at IS NULL AND incoming.pause_reason IS NOT NULL
                             AND NOT job.serving_manual AND job.plan_version = incoming.plan_version
                            THEN incoming.pause_reason ELSE job.pause_reason END,
        invalid_reason = CASE WHEN incoming.status = 'INVALID' AND job.plan_version = incoming.plan_version
                               AND NOT job.serving_manual
                              THEN incoming.reason END,
        tzdata_version = CASE WHEN job.serving_manual OR job.plan_version <> incoming.plan_version
                              THEN job.tzdata_version ELSE :tzdata_version END,
        claim_id = NULL, execution_id = NULL, lease_expires_at = NULL, report = NULL, crashes = 0,
        last_outcome = incoming.outcome, last_error = incoming.error, last_finished_at = :now,
        plan_count = job.plan_count + 1
    FROM incoming
    WHERE job.id = incoming.id AND job.claim_id = incoming.claim_id
      AND job.execution_id IS NOT DISTINCT FROM incoming.execution_id
    RETURNING job.id, job.tenant_id, job.job_type, job.serving_at, job.due_at, job.serving_manual, job.removed_at,
              incoming.outcome, incoming.error, incoming.tries, incoming.started_at, incoming.claim_id,
              incoming.execution_id
), history AS (
    INSERT INTO cronless.job_execution
        (recorded_at, job_id, tenant_id, job_type, outcome, scheduled_for, due_at, started_at, attempt, manual,
         claim_id, execution_id, run_id, error)
    SELECT :now, id, tenant_id, job_type, outcome, serving_at, due_at, started_at, tries, serving_manual,
           claim_id, coalesce(execution_id, CAST(:holder AS uuid)), :run_id, error
    FROM finished
)
SELECT id, removed_at IS NOT NULL AS removed FROM finished
