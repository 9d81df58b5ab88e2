-- Roles belong to the whole server: another database may have made them already, and on a hosted
-- server the migrating user may not be allowed to; then the grants are left to its administrator.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['cronless_app', 'cronless_dispatcher', 'cronless_worker'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN NULL;
                WHEN insufficient_privilege THEN
                    RAISE WARNING 'role % is missing and may not be created by this user', wanted;
            END;
        END IF;
    END LOOP;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA cronless FROM PUBLIC;

DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cronless_app') THEN
        GRANT USAGE ON SCHEMA cronless TO cronless_app;
        GRANT SELECT, INSERT, UPDATE, DELETE ON cronless.scheduled_job TO cronless_app;
        GRANT SELECT ON cronless.job_claim, cronless.job_execution, cronless.job_type, cronless.clock,
            cronless.progress TO cronless_app;
        GRANT EXECUTE ON FUNCTION cronless.clock_now() TO cronless_app;
        -- The command line asks for the schema's version first.
        GRANT SELECT ON cronless.alembic_version TO cronless_app;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cronless_dispatcher') THEN
        GRANT USAGE ON SCHEMA cronless TO cronless_dispatcher;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA cronless TO cronless_dispatcher;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA cronless TO cronless_dispatcher;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cronless_worker') THEN
        GRANT USAGE ON SCHEMA cronless TO cronless_worker;
        GRANT EXECUTE ON FUNCTION
            cronless.cronless_start(uuid, uuid, uuid, integer),
            cronless.cronless_renew(uuid, uuid, uuid, integer),
            cronless.cronless_finish(uuid, uuid, uuid, text, text, timestamptz)
            TO cronless_worker;
    END IF;
END $$;
