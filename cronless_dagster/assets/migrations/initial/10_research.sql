-- Account research: what is watched, what was found, and what it comes to.
CREATE TABLE cronless_assets.account (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id text NOT NULL,
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT cronless.clock_now(),
    UNIQUE (tenant_id, name)
);

CREATE TABLE cronless_assets.source (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    account_id uuid NOT NULL REFERENCES cronless_assets.account ON DELETE CASCADE,
    kind text NOT NULL CHECK (kind IN ('feed', 'page', 'csv', 'parquet')),
    -- A web address for feeds and pages; for files a path below the directory that the settings name.
    location text NOT NULL,
    -- What the next conditional request says, as the server gave it.
    etag text,
    last_modified text,
    -- Of the bytes that were read last: a file or page that didn't change costs no parsing.
    content_hash text,
    fetched_at timestamptz,
    status text CHECK (status IN ('new', 'unchanged', 'failed')),
    error text,
    UNIQUE (account_id, location)
);

CREATE TABLE cronless_assets.item (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES cronless_assets.account ON DELETE CASCADE,
    source_id uuid NOT NULL REFERENCES cronless_assets.source ON DELETE CASCADE,
    -- What the source calls it: a feed's guid, a file's key, a page's address.
    key text NOT NULL,
    content_hash text NOT NULL,
    title text NOT NULL,
    url text,
    summary text NOT NULL DEFAULT '',
    author text,
    published_at timestamptz,
    -- Provenance: where it was really fetched from, and when it was seen first and found changed.
    fetched_from text NOT NULL,
    first_seen_at timestamptz NOT NULL,
    changed_at timestamptz,
    UNIQUE (source_id, key)
);
CREATE INDEX item_new ON cronless_assets.item (account_id, first_seen_at);

CREATE TABLE cronless_assets.account_summary (
    account_id uuid PRIMARY KEY REFERENCES cronless_assets.account ON DELETE CASCADE,
    refreshed_at timestamptz NOT NULL,
    items integer NOT NULL,
    -- Since the refresh before this one.
    new_items integer NOT NULL,
    changed_items integer NOT NULL,
    sources integer NOT NULL,
    failed_sources integer NOT NULL,
    latest_published_at timestamptz,
    -- Items by ISO week of publication, the first day of the week as key: {"2027-01-04": 3}.
    weekly jsonb NOT NULL
);

CREATE TABLE cronless_assets.tenant_overview (
    tenant_id text PRIMARY KEY,
    accounts integer NOT NULL,
    items integer NOT NULL,
    items_last_week integer NOT NULL,
    items_week_before integer NOT NULL,
    failed_sources integer NOT NULL,
    refreshed_at timestamptz NOT NULL
);
