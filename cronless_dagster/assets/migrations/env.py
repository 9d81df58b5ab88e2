"""Alembic's environment of the ready-made assets: a schema and a version table of their own."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, text

from cronless_dagster.assets.migrate import SCHEMA
from cronless_dagster.store.revision import VERSION_TABLE


def _run(connection: Connection) -> None:
    connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
    context.configure(connection=connection, version_table=VERSION_TABLE, version_table_schema=SCHEMA)
    with context.begin_transaction():
        context.run_migrations()


_run(context.config.attributes["connection"])
