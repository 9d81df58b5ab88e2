"""Snapshots of how each job type does: one for each quarter of an hour, taken by whoever asks first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from cronless_dagster.store.health import FAILING_BOUND, HISTORY_BOUND
from cronless_dagster.store.statements import statement
from cronless_dagster.store.status import read_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

WINDOW = timedelta(minutes=15)

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# `read_status` leaves only plain index scans on; the history's index can only be read by a bitmap.
_BY_BITMAP = text("SELECT set_config('enable_bitmapscan', 'on', true)")


def window_of(now: datetime) -> datetime:
    """Return when the quarter of an hour (UTC) began that `now` lies in."""
    return now - (now - _EPOCH) % WINDOW


def untaken(connection: Connection, names: Sequence[str], window: datetime) -> list[str]:
    """Return those of the job types that have no snapshot of the window, sorted."""
    return list(
        connection.execute(statement("untaken_snapshots"), {"names": list(names), "window": window}).scalars()
    )


def take(connection: Connection, names: Sequence[str], window: datetime, now: datetime) -> int:
    """Take the snapshots of a window that nobody has taken or is taking; returns how many.

    Args:
        connection: In a transaction, of which the rest uses index scans only.
        names: Job types; each costs the same however large the table is.
        window: As of `window_of`. The history is asked about the window before; what was recorded in its last moment
            and is committed after this call is not in it.
        now: The database's current time (UTC).
    """
    held = connection.execute(statement("hold_snapshots"), {"names": list(names), "window": window}).scalars()
    # Taken between the caller's question and this hold.
    wanted = untaken(connection, list(held), window)
    if not wanted:
        return 0
    counted = read_status(connection, now, names=wanted).types
    connection.execute(_BY_BITMAP)
    return connection.execute(
        statement("take_snapshots"),
        {
            "names": [one.job_type for one in counted],
            "due": [one.due for one in counted],
            "late": [one.late for one in counted],
            "running": [one.running for one in counted],
            "stuck": [one.stuck for one in counted],
            "since": window - WINDOW,
            "window": window,
            "now": now,
            "bound": HISTORY_BOUND,
            "failing_bound": FAILING_BOUND,
        },
    ).rowcount
