"""The tables of the ready-made assets: a schema beside the scheduler's, for those who use them."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text

from cronless_dagster.store.database import create_store_engine, require_current, translated_errors
from cronless_dagster.store.migrate import MIGRATION_LOCK, run_revisions

SCHEMA = "cronless_assets"


def upgrade_assets(url: str) -> None:
    """Bring the schema `cronless_assets` to this release's; harmless when current.

    Raises:
        DatabaseUnavailable: No connection.
        DatabaseNotMigrated: The scheduler's own schema isn't current: run `cronless db upgrade` first.
    """
    engine = create_store_engine(url, pooled=False)
    try:
        require_current(engine)
        with translated_errors(engine), engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
            run_revisions(connection, Path(__file__).parent / "migrations")
    finally:
        engine.dispose()
