"""What running code declares: the table `job_type`, kept by the ticks and read by everybody else."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

if TYPE_CHECKING:
    from collections.abc import Iterable

# Written seldom, so that an empty tick stays a read.
SEEN_EVERY = timedelta(minutes=30)
# A type that no tick has declared for so long counts as undeclared.
FORGOTTEN_AFTER = timedelta(hours=24)

_DECLARE = text(
    "INSERT INTO cronless.job_type (name, route, batch_size, seen_at) VALUES (:name, :route, :batch_size, :now)"
    " ON CONFLICT (name) DO UPDATE SET route = excluded.route, batch_size = excluded.batch_size,"
    " seen_at = excluded.seen_at"
    " WHERE job_type.seen_at < :stale OR (job_type.route, job_type.batch_size)"
    " IS DISTINCT FROM (excluded.route, excluded.batch_size)"
)
_KNOWN = text("SELECT name, route, batch_size, seen_at FROM cronless.job_type")


def declare(connection: Connection, types: Iterable[tuple[str, str, int]], now: datetime) -> None:
    """Note (name, route, batch size) of the job types that the running code declares.

    Reads first: the rows of an unchanged declaration are neither written nor locked.
    """
    known = {row.name: row for row in connection.execute(_KNOWN)}
    stale = now - SEEN_EVERY
    for name, route, batch_size in sorted(types):
        row = known.get(name)
        if row is None or (row.route, row.batch_size) != (route, batch_size) or row.seen_at < stale:
            connection.execute(
                _DECLARE, {"name": name, "route": route, "batch_size": batch_size, "now": now, "stale": stale}
            )


def forgotten_types(connection: Connection, names: set[str], now: datetime) -> set[str]:
    """Return those of the names that no running code has declared for `FORGOTTEN_AFTER`."""
    return names - set(declared_types(connection, now)) if names else set()


def queue_types(connection: Connection, now: datetime) -> list[str]:
    """Return the names of the job types that some running code has declared lately for the queue route, sorted."""
    return sorted(
        row.name
        for row in connection.execute(_KNOWN)
        if row.route == "queue" and row.seen_at >= now - FORGOTTEN_AFTER
    )


def declared_types(connection: Connection, now: datetime) -> list[str]:
    """Return the names of the job types that some running code has declared lately, sorted."""
    return sorted(row.name for row in connection.execute(_KNOWN) if row.seen_at >= now - FORGOTTEN_AFTER)
