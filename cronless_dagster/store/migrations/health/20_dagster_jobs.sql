-- Claims of users' own Dagster jobs have a route of their own, so that code which doesn't know them leaves them alone: it
-- would take the end of such a run for the death of the claim's holder, and run the job again.
ALTER TABLE cronless.job_claim DROP CONSTRAINT job_claim_route_check;
ALTER TABLE cronless.job_claim ADD CONSTRAINT job_claim_route_check
    CHECK (route IN ('run', 'queue', 'local', 'dagster_job'));
