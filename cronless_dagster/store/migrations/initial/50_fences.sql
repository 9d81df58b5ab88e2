-- The start fence of one job. A message delivered twice with the same token starts once; the same
-- execution asking again (its COMMIT's answer was lost) gets the same answer.
CREATE FUNCTION cronless.cronless_start(job uuid, token uuid, execution uuid, lease_seconds integer DEFAULT 600)
RETURNS TABLE (tenant_id text, job_type text, name text, payload jsonb, scheduled_for timestamptz,
               attempt integer, manual boolean, lease_expires_at timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE cronless.scheduled_job AS j
    SET status = 'RUNNING',
        attempt = j.attempt + CASE WHEN j.status = 'QUEUED' THEN 1 ELSE 0 END,
        execution_id = execution,
        lease_expires_at = cronless.clock_now() + make_interval(secs => lease_seconds),
        plan_count = j.plan_count + 1
    WHERE j.id = job AND j.claim_id = token AND j.report IS NULL
      AND (j.status = 'QUEUED' OR j.execution_id = execution)
    RETURNING j.tenant_id, j.job_type, j.name, j.payload, j.serving_at, j.attempt, j.serving_manual,
              j.lease_expires_at
$$;

-- Lease renewal of one running job; false: the claim was lost, stop.
CREATE FUNCTION cronless.cronless_renew(job uuid, token uuid, execution uuid, lease_seconds integer DEFAULT 600)
RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH renewed AS (
        UPDATE cronless.scheduled_job AS j
        SET lease_expires_at = cronless.clock_now() + make_interval(secs => lease_seconds),
            plan_count = j.plan_count + 1
        WHERE j.id = job AND j.claim_id = token AND j.status = 'RUNNING' AND j.execution_id = execution
        RETURNING 1)
    SELECT EXISTS (SELECT 1 FROM renewed)
$$;

-- The finish fence of one job for workers in any language: the outcome is stored and the next tick
-- plans, by the same planner as everybody else. Answers 'accepted', 'already accepted' or 'claim lost'.
CREATE FUNCTION cronless.cronless_finish(job uuid, token uuid, execution uuid, outcome text,
                                         error text DEFAULT NULL, next_at timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF outcome IS NULL OR outcome NOT IN ('success', 'failure') THEN
        RAISE EXCEPTION 'outcome % is not known: give success or failure', coalesce(outcome, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF next_at NOT BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999999+00' THEN
        RAISE EXCEPTION 'next_at % is out of range: give an instant of the years 1 to 9999', next_at
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE cronless.scheduled_job AS j
    SET report = jsonb_build_object('outcome', outcome, 'error', left(error, 4000), 'next_at', next_at,
                                    'at', cronless.clock_now()),
        plan_count = j.plan_count + 1
    WHERE j.id = job AND j.claim_id = token AND j.status = 'RUNNING' AND j.execution_id = execution
      AND j.report IS NULL;
    IF FOUND THEN
        RETURN 'accepted';
    END IF;
    PERFORM 1 FROM cronless.scheduled_job AS j
    WHERE j.id = job AND j.claim_id = token AND j.execution_id = execution AND j.report IS NOT NULL;
    IF FOUND THEN
        RETURN 'already accepted';
    END IF;
    PERFORM 1 FROM cronless.job_execution AS e
    WHERE e.job_id = job AND e.claim_id = token AND e.execution_id = execution
      AND e.outcome NOT IN ('missed', 'crashed');
    RETURN CASE WHEN FOUND THEN 'already accepted' ELSE 'claim lost' END;
END $$;
