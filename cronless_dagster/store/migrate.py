"""Bringing a database to this code's schema with Alembic."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, text

from cronless_dagster.store.database import (
    create_store_engine,
    require_current,
    schema_version,
    translated_errors,
)
from cronless_dagster.store.errors import DatabaseNewer
from cronless_dagster.store.revision import HEAD, KNOWN

# Any number: it only has to be the same in every process that migrates.
MIGRATION_LOCK = 7262901442


def upgrade(url: str) -> tuple[str | None, str]:
    """Migrate to the newest schema and return (revision before, revision now); harmless when current.

    Two processes at once are serialised by an advisory lock, and each migration is one transaction.

    :raises DatabaseUnavailable: no connection.
    :raises DatabaseNewer: the schema is newer than this code.
    """
    engine = create_store_engine(url, pooled=False)
    with translated_errors(engine), engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        before = schema_version(connection)
        if before is not None and before not in KNOWN:
            raise DatabaseNewer(
                f"the database has schema version {before!r}, newer than this code's {HEAD!r}: "
                "install the newer release"
            )
        if before != HEAD:
            run_revisions(connection, Path(__file__).parent / "migrations")
    require_current(engine)
    engine.dispose()
    return before, HEAD


def run_revisions(connection: Connection, location: Path) -> None:
    """Run what is missing of the revisions in a directory, in the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    connection.execute(text("SET LOCAL lock_timeout = '10s'"))
    config = Config()
    config.set_main_option("script_location", str(location))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
