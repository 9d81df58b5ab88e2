"""Research, digests and webhooks as first released."""

from __future__ import annotations

from pathlib import Path

from alembic import op

from cronless_dagster.store.migrations.scripts import run_files

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables of the ready-made assets."""
    run_files(op.get_bind(), Path(__file__).parent.parent / "initial")


def downgrade() -> None:
    """Refuse: going back to nothing would drop what people gathered."""
    raise NotImplementedError("there is nothing before the first revision: drop the schema by hand if meant")
