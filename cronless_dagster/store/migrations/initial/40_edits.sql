-- Every statement of the dispatcher raises plan_count; an UPDATE that does not is somebody's edit.
-- The WHEN clause keeps hot statements from entering the function at all.
CREATE FUNCTION cronless.job_edited() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    -- Not the transaction's start: what became due since is due.
    at timestamptz := coalesce((SELECT virtual_now FROM cronless.clock), clock_timestamp());
    claimed boolean := OLD.claim_id IS NOT NULL;
    moved boolean := NEW.next_run_at IS DISTINCT FROM OLD.next_run_at;
    planning boolean :=
        (OLD.schedule, OLD.timezone, OLD.dst_policy, OLD.starts_at, OLD.ends_at, OLD.jitter_seconds)
        IS DISTINCT FROM
        (NEW.schedule, NEW.timezone, NEW.dst_policy, NEW.starts_at, NEW.ends_at, NEW.jitter_seconds);
    resumed boolean := OLD.paused_at IS NOT NULL AND NEW.paused_at IS NULL;
    ended boolean := OLD.status IN ('DONE', 'FAILED', 'INVALID');
BEGIN
    IF NEW.removed_at IS NOT NULL AND OLD.removed_at IS NULL AND NOT claimed THEN
        -- Only a claimed row needs a tombstone.
        DELETE FROM cronless.scheduled_job WHERE id = OLD.id;
        RETURN NULL;
    END IF;
    NEW.updated_at := at;
    NEW.plan_version := OLD.plan_version;
    IF claimed AND (OLD.tenant_id, OLD.job_type) IS DISTINCT FROM (NEW.tenant_id, NEW.job_type) THEN
        RAISE EXCEPTION 'job % is claimed: its tenant and job type can change once it is back in PENDING',
            OLD.id USING ERRCODE = 'object_in_use';
    END IF;
    IF moved THEN
        -- A direct write of the instant wins over whatever is being planned.
        NEW.plan_version := OLD.plan_version + 1;
        NEW.scheduled_for := NEW.next_run_at;
        -- Not the planner's work: a change of zone data must not plan it anew.
        NEW.tzdata_version := NULL;
        IF NOT claimed THEN
            NEW.attempt := 0;
            IF ended AND NEW.status = OLD.status THEN
                NEW.status := 'PENDING';
                NEW.invalid_reason := NULL;
                NEW.crashes := 0;
            END IF;
        END IF;
    ELSIF planning OR (OLD.status = 'INVALID' AND OLD.payload IS DISTINCT FROM NEW.payload) THEN
        NEW.plan_version := OLD.plan_version + 1;
        IF ended AND NEW.status = OLD.status THEN
            -- scheduled_for stays, so that what an INVALID row missed is recorded; DONE and FAILED have none.
            NEW.status := 'PENDING';
            NEW.next_run_at := NULL;
            NEW.invalid_reason := NULL;
            NEW.attempt := 0;
            NEW.crashes := 0;
        ELSIF NEW.next_run_at > at THEN
            -- What is due stays due; what lies ahead is planned anew. A claimed row holds an instant
            -- here only beside a manual run.
            NEW.next_run_at := NULL;
            IF OLD.attempt = 0 AND NEW.schedule !~* '^\s*@handler' THEN
                -- Else the planner needs it: a retry that waits is not dropped in silence, and the instant
                -- that a handler chose can't be computed again.
                NEW.scheduled_for := NULL;
            END IF;
        END IF;
    END IF;
    IF resumed THEN
        -- What fell into the pause is not made up: the planner starts from now and records the stretch
        -- from scheduled_for on.
        NEW.plan_version := OLD.plan_version + 1;
        NEW.pause_reason := NULL;
        NEW.consecutive_failures := 0;
        IF NOT moved AND (NOT claimed OR OLD.serving_manual) THEN
            NEW.next_run_at := NULL;
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER job_edited BEFORE UPDATE ON cronless.scheduled_job
FOR EACH ROW WHEN (NEW.plan_count = OLD.plan_count) EXECUTE FUNCTION cronless.job_edited();

-- A claimed row is not deleted under its holder: it becomes a tombstone, which its finish deletes.
CREATE FUNCTION cronless.job_removed() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE cronless.scheduled_job SET removed_at = coalesce(removed_at, cronless.clock_now())
    WHERE id = OLD.id;
    RETURN NULL;
END $$;

CREATE TRIGGER job_removed BEFORE DELETE ON cronless.scheduled_job
FOR EACH ROW WHEN (OLD.claim_id IS NOT NULL) EXECUTE FUNCTION cronless.job_removed();
