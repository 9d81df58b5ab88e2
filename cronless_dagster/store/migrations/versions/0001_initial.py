"""The schema as first released: clock, tables, history, edit triggers, fences, roles."""

from __future__ import annotations

from pathlib import Path

from alembic import op
from sqlalchemy import text

from cronless_dagster.store.migrations.scripts import run_files

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_HISTORY_DAYS_AHEAD = 14


def upgrade() -> None:
    """Create everything, and the history's partitions of the next days."""
    run_files(op.get_bind(), Path(__file__).parent.parent / "initial")
    op.get_bind().execute(
        text(
            "SELECT cronless.ensure_history_partition((cronless.clock_now() AT TIME ZONE 'UTC')::date + n)"
            " FROM generate_series(-1, :days) AS n"
        ),
        {"days": _HISTORY_DAYS_AHEAD},
    )


def downgrade() -> None:
    """Refuse: going back to nothing would drop every schedule."""
    raise NotImplementedError("there is nothing before the first revision: drop the schema by hand if meant")
