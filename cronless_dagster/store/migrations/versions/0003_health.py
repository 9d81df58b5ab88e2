"""What schedule_health asks for: failing jobs, ended jobs, the history of the last hour."""

from __future__ import annotations

from pathlib import Path

from alembic import op

from cronless_dagster.store.migrations.scripts import run_files

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the indexes."""
    run_files(op.get_bind(), Path(__file__).parent.parent / "health")


def downgrade() -> None:
    """Refuse: older code works with this schema as it is, once told of its revision."""
    raise NotImplementedError("there is no way back from this revision: go on with the current release")
