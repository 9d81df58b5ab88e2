"""The one place where time is read: the database's clock, or a virtual one that governs everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

from cronless_dagster.scheduling.zones import utc
from cronless_dagster.store.errors import ClockError

if TYPE_CHECKING:
    from datetime import datetime

_READ = text("SELECT cronless.clock_now()")
_VIRTUAL = text("SELECT virtual_now FROM cronless.clock")
_SET = text("UPDATE cronless.clock SET virtual_now = :now")


def current_time(connection: Connection, now: datetime | None = None) -> datetime:
    """Return the instant that governs this transaction, aware UTC.

    :param now: an instant in place of the database's clock; it becomes the virtual clock's time, so that the
        edit trigger and every other process see the same.
    :raises ClockError: `now` was given and the database isn't marked as having a virtual clock.
    """
    if now is not None:
        if now.tzinfo is None:
            raise ClockError(
                f"now {now.isoformat()} has no zone: give an aware instant such as 2026-12-01T09:00Z"
            )
        stands_at = connection.execute(_VIRTUAL).scalar()
        if stands_at is None:
            raise ClockError(
                f"now {now.isoformat()} is refused: this database runs on real time, and only one marked as "
                "having a virtual clock takes another"
            )
        if stands_at != now:
            # Written only to be moved: the row is one for all, and whoever writes it makes the others wait.
            connection.execute(_SET, {"now": now})
        return utc(now)
    return utc(connection.execute(_READ).scalar_one())


def make_virtual(engine: Engine, now: datetime) -> None:
    """Mark the database as having a virtual clock that stands at `now` (tests and demonstrations only)."""
    with engine.begin() as connection:
        connection.execute(_SET, {"now": now})
