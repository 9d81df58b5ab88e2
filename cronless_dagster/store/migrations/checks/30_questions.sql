-- What calls from outside ask first, a thousand times for each time that there is something to do. A function, because
-- to plan the question takes five times as long as to answer it, and a function's plans are kept by its connection, also
-- behind a pooler. The settings hold the kept plans to the partial indexes: not knowing the values, the planner would hope
-- to meet a row early in the table.

-- Whether a tick is worth making for a part of the id space, and why: one probe of an index for each question, in the
-- order of their cost. A type's due rows that belong to other parts are passed over within the index.
CREATE FUNCTION cronless.anything_to_do(
    asked_now timestamptz, job_types text[], id_low uuid, id_high uuid, turn text, quiet interval, patience interval,
    OUT now timestamptz, OUT why text)
    LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET lock_timeout = '5s'
AS $$
#variable_conflict use_variable
BEGIN
    now := coalesce(asked_now, cronless.clock_now());
    why := CASE
        WHEN EXISTS (SELECT FROM cronless.scheduled_job AS job
                     WHERE job.status = 'PENDING' AND job.next_run_at IS NULL AND job.paused_at IS NULL
                       AND job.id BETWEEN id_low AND id_high) THEN 'unplanned'
        WHEN EXISTS (SELECT FROM cronless.scheduled_job AS job
                     WHERE job.report IS NOT NULL AND job.id BETWEEN id_low AND id_high) THEN 'reported'
        WHEN EXISTS (SELECT FROM cronless.job_claim AS claim
                     WHERE claim.state IN ('CLAIMED', 'SUBMITTED', 'RUNNING') AND claim.state = 'CLAIMED'
                       AND claim.id_low BETWEEN anything_to_do.id_low AND anything_to_do.id_high
                       AND claim.job_type = ANY (job_types)
                       AND (claim.handed_over_at IS NULL OR claim.handed_over_at <= now - patience)) THEN 'unsent'
        WHEN EXISTS (SELECT FROM unnest(job_types) AS type (name)
                     CROSS JOIN LATERAL (
                         SELECT FROM cronless.scheduled_job AS job
                         WHERE job.status = 'PENDING' AND job.paused_at IS NULL AND job.job_type = type.name
                           AND job.next_run_at <= now AND job.id BETWEEN id_low AND id_high
                         ORDER BY job.job_type, job.next_run_at, job.id LIMIT 1) AS due) THEN 'due'
        WHEN EXISTS (SELECT FROM unnest(job_types) AS type (name)
                     CROSS JOIN LATERAL (
                         SELECT FROM cronless.scheduled_job AS job
                         WHERE job.status = 'PENDING' AND job.trigger_requested_at IS NOT NULL
                           AND job.job_type = type.name AND job.trigger_requested_at <= now
                           AND job.id BETWEEN id_low AND id_high
                         ORDER BY job.job_type, job.trigger_requested_at, job.id LIMIT 1) AS due) THEN 'triggered'
        WHEN turn IS NOT NULL
             AND NOT EXISTS (SELECT FROM cronless.progress AS noted
                             WHERE noted.key = turn AND noted.updated_at > now - quiet) THEN 'quiet'
    END;
END $$;

-- Whether anything of a part of the id space is in flight: what a rescue could mend. Few claims are open at any time.
CREATE FUNCTION cronless.anything_open(id_low uuid, id_high uuid, OUT now timestamptz, OUT is_open boolean)
    LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET lock_timeout = '5s'
AS $$
#variable_conflict use_variable
BEGIN
    now := cronless.clock_now();
    is_open := EXISTS (SELECT FROM cronless.job_claim AS claim
                       WHERE claim.state IN ('CLAIMED', 'SUBMITTED', 'RUNNING')
                         AND claim.id_low BETWEEN anything_open.id_low AND anything_open.id_high)
        OR EXISTS (SELECT FROM cronless.scheduled_job AS job
                   WHERE job.report IS NOT NULL AND job.id BETWEEN anything_open.id_low AND anything_open.id_high);
END $$;

REVOKE ALL ON FUNCTION
    cronless.anything_to_do(timestamptz, text[], uuid, uuid, text, interval, interval), cronless.anything_open(uuid, uuid)
    FROM PUBLIC;

DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cronless_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION
            cronless.anything_to_do(timestamptz, text[], uuid, uuid, text, interval, interval),
            cronless.anything_open(uuid, uuid)
            TO cronless_dispatcher;
    END IF;
END $$;
