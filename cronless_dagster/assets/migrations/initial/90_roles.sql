-- The application writes what is watched; whoever runs handlers writes the rest.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['cronless_app', 'cronless_dispatcher', 'cronless_worker'] LOOP
        IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('GRANT USAGE ON SCHEMA cronless_assets TO %I', wanted);
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA cronless_assets TO %I', wanted);
        END IF;
    END LOOP;
END $$;
