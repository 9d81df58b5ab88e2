-- Where an entity lies in the id space that calls from outside cut in groups, whatever its ids look like: the first 16
-- bytes of the SHA-256 of its text, an integer's being its decimal one. For the queries of users' own checks.
CREATE FUNCTION cronless.place_of(entity text) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN encode(substring(sha256(convert_to(entity, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid;

-- What a check did for an entity in a window: written in the transaction that does it, so that a second call finds it
-- done. Kept for an entity, never for a call.
CREATE TABLE cronless.check_done (
    check_name text NOT NULL,
    place uuid NOT NULL,
    window_start timestamptz NOT NULL,
    entity text NOT NULL,
    -- the end of its window, or when it was done if that is later: from then on it ages
    over_at timestamptz NOT NULL DEFAULT cronless.clock_now(),
    PRIMARY KEY (check_name, place, window_start)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX check_over_at ON cronless.check_done (over_at);

REVOKE ALL ON FUNCTION cronless.place_of(text) FROM PUBLIC;

DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cronless_app') THEN
        GRANT EXECUTE ON FUNCTION cronless.place_of(text) TO cronless_app;
        GRANT SELECT ON cronless.check_done TO cronless_app;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cronless_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION cronless.place_of(text) TO cronless_dispatcher;
        GRANT SELECT, INSERT, UPDATE, DELETE ON cronless.check_done TO cronless_dispatcher;
    END IF;
END $$;
