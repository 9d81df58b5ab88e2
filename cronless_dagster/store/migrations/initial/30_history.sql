-- One row a finished try, or a stretch of missed instants. Partitioned by day so that retention is a
-- DROP and never a DELETE.
CREATE TABLE cronless.job_execution (
    recorded_at timestamptz NOT NULL,
    job_id uuid NOT NULL,
    tenant_id text NOT NULL,
    job_type text NOT NULL,
    outcome text NOT NULL CHECK (outcome IN
        ('success', 'failure', 'exhausted', 'superseded', 'canceled', 'crashed', 'missed')),
    scheduled_for timestamptz,
    due_at timestamptz,
    started_at timestamptz,
    attempt integer NOT NULL DEFAULT 0,
    manual boolean NOT NULL DEFAULT false,
    claim_id uuid,
    execution_id uuid,
    run_id text,
    error text,
    -- of a missed stretch: scheduled_for is its first instant
    missed_last timestamptz,
    missed_count integer,
    missed_reason text
) PARTITION BY RANGE (recorded_at);
CREATE INDEX job_execution_job ON cronless.job_execution (job_id, recorded_at DESC);

-- ATTACH takes a weaker lock on the parent than CREATE … PARTITION OF, so writers of other days go on.
CREATE FUNCTION cronless.ensure_history_partition(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    part text := 'job_execution_' || to_char(day, 'YYYYMMDD');
    -- UTC days whatever the session's zone is
    low timestamptz := day::timestamp AT TIME ZONE 'UTC';
    high timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF to_regclass('cronless.' || part) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(7262901443);
    -- Not by to_regclass: the session's cache still holds that there is none.
    IF EXISTS (SELECT 1 FROM pg_class WHERE relname = part AND relnamespace = 'cronless'::regnamespace) THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE cronless.%I (LIKE cronless.job_execution INCLUDING ALL)', part);
    EXECUTE format('ALTER TABLE cronless.job_execution ATTACH PARTITION cronless.%I '
                   'FOR VALUES FROM (%L) TO (%L)', part, low, high);
    RETURN true;
END $$;

-- For a dispatcher that doesn't own the history and so may not detach. Not CONCURRENTLY, which no function may;
-- it gives up soon, since whoever waits for this lock makes all others wait.
CREATE FUNCTION cronless.drop_history_partition(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $$
DECLARE
    part text := 'job_execution_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass('cronless.' || part)) THEN
        EXECUTE format('ALTER TABLE cronless.job_execution DETACH PARTITION cronless.%I%s', part,
                       CASE WHEN (SELECT inhdetachpending FROM pg_inherits
                                  WHERE inhrelid = to_regclass('cronless.' || part)) THEN ' FINALIZE' ELSE '' END);
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS cronless.%I', part);
END $$;
