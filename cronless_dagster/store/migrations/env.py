"""Alembic's environment: the connection is handed in, and the version table lives in our own schema."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, text

from cronless_dagster.store.revision import SCHEMA, VERSION_TABLE
from cronless_dagster.store.tables import metadata


def _run(connection: Connection) -> None:
    # Dagster keeps the default `alembic_version` in the same database: the two must not meet.
    connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        version_table_schema=SCHEMA,
        include_schemas=True,
    )
    with context.begin_transaction():
        context.run_migrations()


_run(context.config.attributes["connection"])
