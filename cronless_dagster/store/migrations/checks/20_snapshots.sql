-- How each job type did, a row for each quarter of an hour: what stood at taken_at, and what the history says of the
-- quarter that ended when this one began. The primary key is also what keeps a second call from taking it again.
CREATE TABLE cronless.health_snapshot (
    window_start timestamptz NOT NULL,
    job_type text NOT NULL,
    taken_at timestamptz NOT NULL,
    due integer NOT NULL,
    late integer NOT NULL,
    running integer NOT NULL,
    stuck integer NOT NULL,
    failing integer NOT NULL,
    -- Seconds from due to started, of what ended in the quarter; NULL: nothing did.
    lateness_p50 double precision,
    lateness_p95 double precision,
    lateness_p99 double precision,
    -- How many of each outcome; of missed ones the instants, not the stretches.
    outcomes jsonb NOT NULL,
    PRIMARY KEY (window_start, job_type)
);

-- For those who let jobs go that have ended: the longest ended first, other parts' passed over within the index. A row
-- enters it only with its end, which moves it in other indexes as well.
CREATE INDEX scheduled_job_ended_at ON cronless.scheduled_job (last_finished_at, id) WHERE status IN ('DONE', 'FAILED');

DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cronless_app') THEN
        GRANT SELECT ON cronless.health_snapshot TO cronless_app;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cronless_dispatcher') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON cronless.health_snapshot TO cronless_dispatcher;
    END IF;
END $$;
