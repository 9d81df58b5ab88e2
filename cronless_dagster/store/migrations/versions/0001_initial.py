"""The schema as first released: clock, tables, history, edit triggers, fences, roles."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_STATEMENTS = Path(__file__).parent.parent / "initial"
_HISTORY_DAYS_AHEAD = 14


def upgrade() -> None:
    """Create everything, in the order of the files' numbers, in the caller's transaction."""
    driver = op.get_bind().connection.driver_connection
    with driver.cursor() as cursor:  # type: ignore[union-attr]
        for file in sorted(_STATEMENTS.glob("*.sql")):
            # Through the driver: the files hold percent signs and many statements each.
            cursor.execute(file.read_text(encoding="utf-8"))
        cursor.execute(
            "SELECT cronless.ensure_history_partition((cronless.clock_now() AT TIME ZONE 'UTC')::date + n) "
            "FROM generate_series(-1, %s) AS n",
            (_HISTORY_DAYS_AHEAD,),
        )


def downgrade() -> None:
    """Refuse: going back to nothing would drop every schedule."""
    raise NotImplementedError("there is nothing before the first revision: drop the schema by hand if meant")
