"""The queue route: the claim's first start, by which lost messages are told from a backlog."""

from __future__ import annotations

from pathlib import Path

from alembic import op

from cronless_dagster.store.migrations.scripts import run_files

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index and the start that notes itself on the claim."""
    run_files(op.get_bind(), Path(__file__).parent.parent / "queue")


def downgrade() -> None:
    """Refuse: older code works with this schema as it is, once told of its revision."""
    raise NotImplementedError("there is no way back from this revision: go on with the current release")
