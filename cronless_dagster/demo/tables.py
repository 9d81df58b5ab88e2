"""Where the demo's handlers write, so that people can query what ran: the schema `cronless_demo`."""

from __future__ import annotations

from sqlalchemy import Engine, text

from cronless_dagster.store.database import transaction

_TABLES = (
    "CREATE SCHEMA IF NOT EXISTS cronless_demo",
    # What a refresh found: facts about the tenant's own jobs, read from the schedule itself.
    (
        "CREATE TABLE IF NOT EXISTS cronless_demo.refresh ("
        " idempotency_key text PRIMARY KEY, tenant_id text NOT NULL, name text NOT NULL, "
        " scheduled_for timestamptz NOT NULL,"
        " jobs integer NOT NULL, due_next timestamptz, written_at timestamptz NOT NULL DEFAULT now())"
    ),
    # A digest as it would be mailed; the demo sends nothing.
    (
        "CREATE TABLE IF NOT EXISTS cronless_demo.digest ("
        " idempotency_key text PRIMARY KEY, tenant_id text NOT NULL, name text NOT NULL, "
        " scheduled_for timestamptz NOT NULL,"
        " body text NOT NULL, written_at timestamptz NOT NULL DEFAULT now())"
    ),
    # A lease as a hub would grant it; the demo asks no hub.
    (
        "CREATE TABLE IF NOT EXISTS cronless_demo.webhook_lease ("
        " tenant_id text NOT NULL, name text NOT NULL, renewals integer NOT NULL, last_key text NOT NULL,"
        " renewed_for timestamptz NOT NULL, expires_at timestamptz NOT NULL, PRIMARY KEY (tenant_id, name))"
    ),
)


def make_tables(engine: Engine) -> None:
    """Create the demo's own tables where they are missing."""
    with transaction(engine) as connection:
        for statement in _TABLES:
            connection.execute(text(statement))
