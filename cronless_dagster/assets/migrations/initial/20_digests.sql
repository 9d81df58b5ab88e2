-- E-mail digests: who gets one, of which accounts, and the ledger of what was sent.
CREATE TABLE cronless_assets.digest_user (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id text NOT NULL,
    email text NOT NULL,
    name text NOT NULL DEFAULT '',
    -- In which the mail shows its times; the hour of sending is the schedule's, in the job's own zone.
    timezone text NOT NULL DEFAULT 'UTC',
    unsubscribed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT cronless.clock_now(),
    UNIQUE (tenant_id, email)
);

CREATE TABLE cronless_assets.follow (
    user_id uuid NOT NULL REFERENCES cronless_assets.digest_user ON DELETE CASCADE,
    account_id uuid NOT NULL REFERENCES cronless_assets.account ON DELETE CASCADE,
    since timestamptz NOT NULL DEFAULT cronless.clock_now(),
    PRIMARY KEY (user_id, account_id)
);

CREATE TABLE cronless_assets.digest_delivery (
    -- Without a foreign key: what was mailed stays known when the user is gone.
    user_id uuid NOT NULL,
    -- The nominal instant that is served, never the one of sending.
    occurrence timestamptz NOT NULL,
    tenant_id text NOT NULL,
    -- The occurrence's date in the user's zone: the partition it is counted in.
    local_date date NOT NULL,
    -- 'sending' is committed before SMTP is spoken to, so one that is left behind may have been mailed.
    status text NOT NULL CHECK (status IN ('nothing_new', 'sending', 'sent', 'refused')),
    message_id text,
    -- Items first seen up to then are covered, and these were shown.
    covers_until timestamptz NOT NULL,
    items bigint[] NOT NULL DEFAULT '{}',
    execution text,
    error text,
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    PRIMARY KEY (user_id, occurrence)
);
CREATE INDEX digest_delivery_day ON cronless_assets.digest_delivery (local_date, tenant_id);
CREATE INDEX digest_delivery_open ON cronless_assets.digest_delivery (started_at) WHERE status = 'sending';
