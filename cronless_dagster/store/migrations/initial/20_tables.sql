-- fillfactor leaves room for updates in the same page; vacuum early and without delay, since each
-- occurrence writes its row two or three times.
CREATE TABLE cronless.scheduled_job (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id text NOT NULL CHECK (tenant_id <> '' AND length(tenant_id) <= 200 AND octet_length(tenant_id) <= 600),
    job_type text NOT NULL CHECK (job_type <> '' AND length(job_type) <= 100 AND octet_length(job_type) <= 300),
    name text NOT NULL DEFAULT '' CHECK (length(name) <= 500 AND octet_length(name) <= 1500),
    payload jsonb NOT NULL DEFAULT '{}'
        CHECK (jsonb_typeof(payload) = 'object') CHECK (pg_column_size(payload) <= 1048576),
    schedule text NOT NULL,
    timezone text NOT NULL DEFAULT 'UTC',
    dst_policy text NOT NULL DEFAULT 'vixie',
    misfire_policy text NOT NULL DEFAULT 'latest' CHECK (misfire_policy IN ('latest', 'skip', 'all')),
    misfire_grace_seconds integer NOT NULL DEFAULT 300 CHECK (misfire_grace_seconds >= 0),
    starts_at timestamptz,
    ends_at timestamptz,
    jitter_seconds integer NOT NULL DEFAULT 0 CHECK (jitter_seconds >= 0),
    -- NULL: the job type's own retry policy
    max_attempts integer CHECK (max_attempts >= 1),
    retry_delay_seconds integer CHECK (retry_delay_seconds >= 0),
    retry_max_delay_seconds integer CHECK (retry_max_delay_seconds >= 0),
    pause_after integer CHECK (pause_after >= 1),
    status text NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'QUEUED', 'RUNNING', 'DONE', 'FAILED', 'INVALID')),
    -- the plan: when to claim, and the nominal instant that this serves (never jittered)
    next_run_at timestamptz,
    scheduled_for timestamptz,
    tzdata_version text,
    plan_version bigint NOT NULL DEFAULT 0,
    plan_count bigint NOT NULL DEFAULT 0,
    -- the occurrence being served while claimed
    claim_id uuid,
    serving_at timestamptz,
    due_at timestamptz,
    serving_manual boolean NOT NULL DEFAULT false,
    execution_id uuid,
    lease_expires_at timestamptz,
    report jsonb,
    -- the three counters' two on the row; the third, dispatches, is the claim's
    attempt integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    consecutive_failures integer NOT NULL DEFAULT 0,
    last_outcome text,
    last_error text,
    last_finished_at timestamptz,
    invalid_reason text,
    -- requests beside the state
    paused_at timestamptz,
    pause_reason text,
    trigger_requested_at timestamptz,
    removed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT cronless.clock_now(),
    updated_at timestamptz NOT NULL DEFAULT cronless.clock_now(),
    CONSTRAINT scheduled_job_claimed CHECK ((status IN ('QUEUED', 'RUNNING')) = (claim_id IS NOT NULL)),
    -- 'infinity' and years that Python can't hold would stop whoever reads the row together with others
    CONSTRAINT scheduled_job_instants CHECK (
        least(starts_at, ends_at, next_run_at, scheduled_for, serving_at, due_at, trigger_requested_at, created_at) >= '0001-01-01Z'
        AND greatest(starts_at, ends_at, next_run_at, scheduled_for, serving_at, due_at, trigger_requested_at, created_at)
            < '10000-01-01Z')
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.02);

-- A tombstone keeps its row until its claim ends, and must not block the name meanwhile.
CREATE UNIQUE INDEX scheduled_job_name ON cronless.scheduled_job (tenant_id, job_type, name)
    WHERE removed_at IS NULL;
-- The claim walks this in order; with id in it a shard passes over its neighbours' entries without
-- visiting their rows.
CREATE INDEX scheduled_job_due ON cronless.scheduled_job (job_type, next_run_at, id)
    WHERE status = 'PENDING' AND paused_at IS NULL;
-- The fair claim's loose scan: one probe for each tenant; id as above.
CREATE INDEX scheduled_job_due_by_tenant ON cronless.scheduled_job (job_type, tenant_id, next_run_at, id)
    WHERE status = 'PENDING' AND paused_at IS NULL;
CREATE INDEX scheduled_job_unplanned ON cronless.scheduled_job (id)
    WHERE status = 'PENDING' AND next_run_at IS NULL AND paused_at IS NULL;
CREATE INDEX scheduled_job_triggered ON cronless.scheduled_job (job_type, trigger_requested_at, id)
    WHERE status = 'PENDING' AND trigger_requested_at IS NOT NULL;
CREATE INDEX scheduled_job_claimed ON cronless.scheduled_job (claim_id, id)
    WHERE status IN ('QUEUED', 'RUNNING');
CREATE INDEX scheduled_job_reported ON cronless.scheduled_job (id) WHERE report IS NOT NULL;
CREATE INDEX scheduled_job_invalid ON cronless.scheduled_job (job_type, id) WHERE status = 'INVALID';
-- For lists of what ended, in their order: few rows of a table that is mostly waiting.
CREATE INDEX scheduled_job_ended ON cronless.scheduled_job (tenant_id, job_type, name)
    WHERE status IN ('DONE', 'FAILED', 'INVALID');
CREATE INDEX scheduled_job_paused ON cronless.scheduled_job (job_type, id) WHERE paused_at IS NOT NULL;

-- The outbox: a claim is committed together with the rows it claims, and is handed over until a run
-- or confirmed messages exist.
CREATE TABLE cronless.job_claim (
    id uuid PRIMARY KEY,
    job_type text NOT NULL,
    route text NOT NULL CHECK (route IN ('run', 'queue', 'local')),
    -- lower bound of the shard that claimed it: whoever's range holds it hands it over
    id_low uuid NOT NULL,
    manual boolean NOT NULL DEFAULT false,
    parent_id uuid,
    job_count integer NOT NULL CHECK (job_count >= 0),
    done_count integer NOT NULL DEFAULT 0,
    failed_count integer NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'CLAIMED' CHECK (state IN ('CLAIMED', 'SUBMITTED', 'RUNNING', 'CLOSED')),
    dispatches integer NOT NULL DEFAULT 0,
    run_id text,
    execution_id uuid,
    lease_seconds integer NOT NULL CHECK (lease_seconds > 0),
    lease_expires_at timestamptz NOT NULL,
    oldest_due_at timestamptz,
    handed_over_at timestamptz,
    created_at timestamptz NOT NULL,
    submitted_at timestamptz,
    started_at timestamptz,
    closed_at timestamptz,
    close_reason text,
    CONSTRAINT job_claim_closed CHECK ((state = 'CLOSED') = (closed_at IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_claim_open ON cronless.job_claim (created_at)
    WHERE state IN ('CLAIMED', 'SUBMITTED', 'RUNNING');
CREATE INDEX job_claim_closed ON cronless.job_claim (closed_at) WHERE state = 'CLOSED';

-- What running code declares, as the last tick saw it.
CREATE TABLE cronless.job_type (
    name text PRIMARY KEY,
    route text NOT NULL CHECK (route IN ('run', 'queue')),
    batch_size integer NOT NULL,
    seen_at timestamptz NOT NULL
);

-- Where the sweep over all rows after a change of zone data stands; the fair claims' tenant cursors; the last
-- tick.
CREATE TABLE cronless.progress (
    key text PRIMARY KEY,
    value jsonb NOT NULL,
    updated_at timestamptz NOT NULL
);
