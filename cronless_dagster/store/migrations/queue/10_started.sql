-- On the queue route a claim's first start is noted on the claim: jobs of a claim that was made a lease
-- later have started, so what an older claim still waits for was lost on the way. The index is small, and quick to
-- make even where ten thousands of closed claims are kept; claims wait for it no longer than a lock may be waited for.
CREATE INDEX job_claim_overtaking ON cronless.job_claim (job_type, created_at)
    WHERE route = 'queue' AND started_at IS NOT NULL;

-- How far a claim's messages are confirmed, in the order of the jobs' ids: a tick whose time is up, or that dies, leaves
-- the rest to the next one.
ALTER TABLE cronless.job_claim ADD COLUMN published_to uuid;

-- Its only job is suspected of having killed a worker, and runs while nothing else runs there.
ALTER TABLE cronless.job_claim ADD COLUMN alone boolean NOT NULL DEFAULT false;

-- Who has the claim locked is not waited for: a tick that has may be waiting for this very row, and another start notes
-- the claim as well.
CREATE OR REPLACE FUNCTION cronless.cronless_start(job uuid, token uuid, execution uuid,
                                                   lease_seconds integer DEFAULT 600)
RETURNS TABLE (tenant_id text, job_type text, name text, payload jsonb, scheduled_for timestamptz,
               attempt integer, manual boolean, lease_expires_at timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH started AS (
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
    ), unnoted AS MATERIALIZED (
        SELECT claim.id
        FROM cronless.job_claim AS claim
        WHERE claim.id = token AND claim.route = 'queue' AND claim.started_at IS NULL
          AND EXISTS (SELECT 1 FROM started)
        FOR NO KEY UPDATE SKIP LOCKED
    ), noted AS (
        UPDATE cronless.job_claim AS claim SET started_at = cronless.clock_now()
        FROM unnoted
        WHERE claim.id = unnoted.id
    )
    SELECT s.tenant_id, s.job_type, s.name, s.payload, s.serving_at, s.attempt, s.serving_manual, s.lease_expires_at
    FROM started AS s
$$;
