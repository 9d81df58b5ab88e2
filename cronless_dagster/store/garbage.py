"""Removing what has had its time, a bounded batch at each call; two at once share the work and never wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.store.database import drive_by_array
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

    from sqlalchemy import Connection

    from cronless_dagster.scheduling.shards import IdRange


def collect_marks(connection: Connection, before: datetime, most: int) -> int:
    """Remove marks of what checks did before an instant; returns how many."""
    return _removed(connection, "collect_marks", before=before, most=most)


def collect_snapshots(connection: Connection, before: datetime, most: int) -> int:
    """Remove snapshots of windows that began before an instant; returns how many."""
    return _removed(connection, "collect_snapshots", before=before, most=most)


def collect_notes(connection: Connection, before: datetime, most: int) -> int:
    """Remove notes of ticks and rescues, of parts of the id space not served since an instant; returns how many."""
    return _removed(connection, "collect_notes", before=before, most=most)


def collect_ended(connection: Connection, ids: IdRange, before: datetime, most: int) -> int:
    """Remove DONE and FAILED jobs that ended before an instant and were left alone since; returns how many."""
    return _removed(connection, "collect_ended", id_low=ids.low, id_high=ids.high, before=before, most=most)


def _removed(connection: Connection, name: str, **values: Any) -> int:
    drive_by_array(connection)
    return connection.execute(statement(name), values).rowcount
