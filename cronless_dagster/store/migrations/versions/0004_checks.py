"""Checks from outside: where entities lie, what was done for them, and the snapshots of analytics."""

from __future__ import annotations

from pathlib import Path

from alembic import op

from cronless_dagster.store.migrations.scripts import run_files

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables and the function."""
    run_files(op.get_bind(), Path(__file__).parent.parent / "checks")


def downgrade() -> None:
    """Refuse: older code works with this schema as it is, once told of its revision."""
    raise NotImplementedError("there is no way back from this revision: go on with the current release")
