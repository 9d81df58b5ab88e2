"""Which tenants have something due, from where the last fair claim stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cronless_dagster.scheduling.shards import FULL, IdRange
from cronless_dagster.store.progress import read_one, write_progress
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection

TENANTS_A_CLAIM = 1_000
TENANTS_SCANNED = 5_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """Since when rows of a job type are due, and since when a person's request waits; None: nothing does."""

    due_since: datetime | None
    triggered_since: datetime | None

    @property
    def since(self) -> datetime | None:
        """The earlier of the two."""
        both = [at for at in (self.due_since, self.triggered_since) if at is not None]
        return min(both, default=None)


def waiting_types(
    connection: Connection, names: list[str], now: datetime, ids: IdRange
) -> dict[str, Waiting]:
    """Return what waits of each job type that has anything to claim."""
    rows = connection.execute(
        statement("waiting_types"), {"job_types": names, "now": now, "id_low": ids.low, "id_high": ids.high}
    )
    found = {row.name: Waiting(row.due_since, row.triggered_since) for row in rows}
    return {name: waiting for name, waiting in found.items() if waiting.since is not None}


def more_due_than(
    connection: Connection, job_type: str, batch_size: int, now: datetime, ids: IdRange
) -> bool:
    """Tell whether more than one batch is due."""
    return bool(
        connection.execute(
            statement("more_due_than"),
            {
                "job_type": job_type,
                "batch_size": batch_size,
                "now": now,
                "id_low": ids.low,
                "id_high": ids.high,
            },
        ).scalar_one()
    )


def due_tenants(
    connection: Connection, job_type: str, wanted: int, now: datetime, ids: IdRange = FULL
) -> list[str]:
    """Return at most `wanted` tenants with due rows, round robin, and move the cursor behind them.

    Each part of the id space has a cursor of its own: with a common one, two dispatchers that take turns would
    each see the same half of the tenants for ever.

    A call looks at no more than `TENANTS_SCANNED` tenants, so that a type with very many tenants of which few
    are due costs a bounded time; the next call goes on from there.
    """
    key = f"tenants:{job_type}:{ids.low}"
    cursor = read_one(connection, key) or ""
    found, last, scanned = _scan(connection, job_type, cursor, wanted, TENANTS_SCANNED, now, ids)
    ended = len(found) < wanted and scanned < TENANTS_SCANNED
    if ended and cursor:
        seen = set(found)
        start, last_again, _ = _scan(
            connection, job_type, "", wanted - len(found), TENANTS_SCANNED - scanned, now, ids
        )
        found += [tenant for tenant in start if tenant not in seen]
        last = last_again
    elif ended:
        last = ""
    if last != cursor:
        write_progress(connection, key, last, now)
    return found


def _scan(
    connection: Connection,
    job_type: str,
    cursor: str,
    wanted: int,
    limit: int,
    now: datetime,
    ids: IdRange,
) -> tuple[list[str], str, int]:
    rows = connection.execute(
        statement("due_tenants"),
        {
            "job_type": job_type,
            "cursor": cursor,
            "wanted": wanted,
            "scan_limit": limit,
            "now": now,
            "id_low": ids.low,
            "id_high": ids.high,
        },
    ).all()
    return [row.tenant_id for row in rows if row.due], rows[-1].tenant_id if rows else "", len(rows)


def tenants_in_flight(connection: Connection, job_type: str) -> Mapping[str, int]:
    """Return how many claimed rows each tenant has of a job type."""
    rows = connection.execute(statement("tenants_in_flight"), {"job_type": job_type})
    return {row.tenant_id: row.in_flight for row in rows}
