-- WebSub subscriptions, and what their hubs delivered.
CREATE TABLE cronless_assets.subscription (
    -- Also the last part of the callback's address: random, so that it can't be guessed.
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id text NOT NULL,
    topic text NOT NULL,
    hub text NOT NULL,
    -- Signs what the hub delivers (WebSub 7.1); less than 200 bytes.
    secret text NOT NULL CHECK (octet_length(secret) < 200),
    -- 'requested' is committed before the hub is asked, and says nothing about an earlier lease: that one lasts
    -- until expires_at. 'leaving' until the hub has verified that we want to go.
    status text NOT NULL DEFAULT 'new'
        CHECK (status IN ('new', 'requested', 'active', 'denied', 'leaving', 'ended')),
    lease_seconds integer,
    requested_at timestamptz,
    -- Requests that the hub took and hasn't verified, since it verified one.
    unanswered integer NOT NULL DEFAULT 0,
    verified_at timestamptz,
    expires_at timestamptz,
    renewals bigint NOT NULL DEFAULT 0,
    -- Deliveries without a valid signature.
    ignored bigint NOT NULL DEFAULT 0,
    -- The scheduled job that renews it.
    job_id uuid,
    error text,
    created_at timestamptz NOT NULL DEFAULT cronless.clock_now(),
    UNIQUE (tenant_id, topic, hub)
);

CREATE TABLE cronless_assets.webhook_content (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id uuid NOT NULL REFERENCES cronless_assets.subscription ON DELETE CASCADE,
    received_at timestamptz NOT NULL,
    content_type text NOT NULL,
    -- A hub delivers again what it isn't sure of: the same bytes are kept once.
    content_hash text NOT NULL,
    body bytea NOT NULL,
    UNIQUE (subscription_id, content_hash)
);
