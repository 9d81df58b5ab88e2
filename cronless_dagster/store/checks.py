"""What calls from outside ask first, cheaply, and what they note as done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import JSONB

from cronless_dagster.scheduling.zones import utc

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from sqlalchemy import Connection

    from cronless_dagster.scheduling.shards import IdRange

MAX_ENTITY = 200
"""Characters of an entity that a mark shows; it is known by its place."""

_ANYTHING_TO_DO = text(
    "SELECT * FROM cronless.anything_to_do(CAST(:now AS timestamptz), CAST(:job_types AS text[]),"
    " CAST(:id_low AS uuid), CAST(:id_high AS uuid), CAST(:turn AS text), CAST(:quiet AS interval),"
    " CAST(:patience AS interval))"
)
_ANYTHING_OPEN = text("SELECT * FROM cronless.anything_open(CAST(:id_low AS uuid), CAST(:id_high AS uuid))")
_TURN = text(
    "INSERT INTO cronless.progress AS noted (key, value, updated_at)"
    " VALUES (:key, :value, :now)"
    " ON CONFLICT (key) DO UPDATE SET value = noted.value || excluded.value, updated_at = excluded.updated_at"
    " WHERE noted.updated_at <= :before"
).bindparams(bindparam("value", type_=JSONB))
# Whoever finds the lock taken leaves the entity to the holder, who is at it.
_MARK = text(
    "INSERT INTO cronless.check_done (check_name, place, window_start, entity, over_at)"
    " SELECT :name, :place, :window, :entity, :now"
    " WHERE pg_try_advisory_xact_lock(hashtextextended(:name || ' ' || :place || ' ' || :window, 0))"
    " ON CONFLICT DO NOTHING"
)
_DONE = text(
    "SELECT done.place, done.window_start FROM cronless.check_done AS done"
    " JOIN unnest(CAST(:places AS uuid[]), CAST(:windows AS timestamptz[])) AS asked (place, window_start)"
    " USING (place, window_start) WHERE done.check_name = :name"
)


def anything_to_do(
    connection: Connection,
    job_types: Collection[str],
    ids: IdRange,
    now: datetime | None,
    *,
    key: str | None,
    quiet: timedelta,
    patience: timedelta,
) -> tuple[datetime, str | None]:
    """Return the database's instant, and why a tick is wanted for these ids; None: nothing is to be done.

    One statement, whose cost follows what is due and in flight, not the table.

    Args:
        connection: In a transaction.
        job_types: What the caller could claim and hand over; others are nobody's to do here.
        ids: The part of the id space.
        now: An instant in place of the clock, already accepted by `current_time`.
        key: Under which the turn to tick is noted (`take_turn`); None: it isn't.
        quiet: A tick is wanted if nobody took that turn for so long.
        patience: Within it a hand-over is under way.
    """
    row = connection.execute(
        _ANYTHING_TO_DO,
        {
            "now": now,
            "job_types": sorted(job_types),
            "id_low": ids.low,
            "id_high": ids.high,
            "turn": key,
            "quiet": quiet,
            "patience": patience,
        },
    ).one()
    return utc(row.now), row.why


def anything_open(connection: Connection, ids: IdRange) -> tuple[datetime, bool]:
    """Return the database's instant, and whether a claim of these ids is open or an outcome waits for the planner."""
    row = connection.execute(_ANYTHING_OPEN, {"id_low": ids.low, "id_high": ids.high}).one()
    return utc(row.now), row.is_open


def take_turn(connection: Connection, key: str, now: datetime, every: timedelta, **noted: Any) -> bool:
    """Take the turn that comes once in `every`: true for one of all callers, whose time is noted, with what else is."""
    return bool(
        connection.execute(
            _TURN, {"key": key, "value": {"at": now.isoformat(), **noted}, "now": now, "before": now - every}
        ).rowcount
    )


def done_of(
    connection: Connection, name: str, wanted: Sequence[tuple[UUID, datetime]]
) -> set[tuple[UUID, datetime]]:
    """Return which of these places and windows a check has done."""
    values = {"name": name, "places": [one[0] for one in wanted], "windows": [one[1] for one in wanted]}
    return {(row.place, utc(row.window_start)) for row in connection.execute(_DONE, values)}


def mark_done(
    connection: Connection, name: str, place: UUID, window: datetime, entity: str, now: datetime
) -> bool:
    """Note that this transaction does an entity's window; false where somebody has done it, or is at it."""
    values = {"name": name, "place": place, "window": window, "entity": entity[:MAX_ENTITY], "now": now}
    return bool(connection.execute(_MARK, values).rowcount)
