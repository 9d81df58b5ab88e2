"""Which tenants have something due, from where the last fair claim stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cronless_dagster.scheduling.shards import FULL, IdRange
from cronless_dagster.store.progress import read_one, write_progress
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

TENANTS_A_CLAIM = 1_000
TENANTS_SCANNED = 5_000
SCANS = 20


@dataclass(frozen=True, slots=True)
class Waiting:
    """Since when rows of a job type are due, and since when a person's request waits; None: nothing does.

    Attributes:
        backlog: Whether more than one batch was due; None where nobody looked.
    """

    due_since: datetime | None
    triggered_since: datetime | None
    backlog: bool | None = None

    @property
    def since(self) -> datetime | None:
        """The earlier of the two."""
        both = [at for at in (self.due_since, self.triggered_since) if at is not None]
        return min(both, default=None)


def waiting_types(
    connection: Connection, batch_sizes: Mapping[str, int], now: datetime, ids: IdRange
) -> dict[str, Waiting]:
    """Return what waits of each job type that has anything to claim; the types are given with their batch sizes."""
    rows = connection.execute(
        statement("waiting_types"),
        {
            "job_types": list(batch_sizes),
            "batch_sizes": list(batch_sizes.values()),
            "now": now,
            "id_low": ids.low,
            "id_high": ids.high,
        },
    )
    found = {row.name: Waiting(row.due_since, row.triggered_since, row.backlog) for row in rows}
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


@dataclass(frozen=True, slots=True)
class Found:
    """The tenants that a fair claim serves next.

    Attributes:
        tenants: Those with due rows, round robin.
        passed_over: How many others had due rows, and were refused.
        whole: Every tenant of the job type has been looked at; otherwise the next call goes on from there.
    """

    tenants: list[str]
    passed_over: int
    whole: bool


def due_tenants(
    connection: Connection,
    job_type: str,
    wanted: int,
    now: datetime,
    ids: IdRange = FULL,
    *,
    accepts: Callable[[str], bool] = lambda _: True,
    more: Callable[[], bool] = lambda: True,
) -> Found:
    """Find at most `wanted` tenants with due rows, and move the cursor behind them.

    Each part of the id space has a cursor of its own: with a common one, two dispatchers that take turns would
    each see the same half of the tenants for ever.

    A scan looks at no more than `TENANTS_SCANNED` tenants, so that a type with very many tenants of which few
    are due costs a bounded time; one that finds nobody is followed by another, up to `SCANS`.

    `accepts` tells whether a tenant with due rows may have any of them claimed now, `more` whether there is time
    for another scan.
    """
    key = f"tenants:{job_type}:{ids.low}"
    begin = at = read_one(connection, key) or ""
    found: list[str] = []
    passed_over = scans = 0
    round_again = whole = False
    room = TENANTS_SCANNED
    while True:
        # Where tenants are refused, ever more are asked for, lest each costs a statement.
        asked = max(wanted - len(found), passed_over)
        until = begin if round_again else None
        rows = _scan(connection, job_type, at, until, asked, room, now, ids)
        ended = len(rows) < room and sum(row.due for row in rows) < asked
        room -= len(rows)
        accepted, refused, at, round_done = _choose(rows, at, wanted - len(found), accepts)
        found += accepted
        passed_over += refused
        if len(found) == wanted:
            break
        if ended or round_done:
            at = ""
            if round_again or not begin:
                whole = True
                break
            round_again = True
        elif room <= 0:
            scans += 1
            if found or scans == SCANS or not more():
                break
            room = TENANTS_SCANNED
    if at != begin:
        write_progress(connection, key, at, now)
    return Found(found, passed_over, whole)


def _choose(
    rows: Sequence[Row[Any]], at: str, wanted: int, accepts: Callable[[str], bool]
) -> tuple[list[str], int, str, bool]:
    """Return the tenants to serve, how many due ones were refused, the last one looked at, and if a round ended."""
    chosen: list[str] = []
    refused = 0
    for row in rows:
        if row.seen or len(chosen) == wanted:
            return chosen, refused, at, row.seen
        at = row.tenant_id
        if row.due and accepts(at):
            chosen.append(at)
        else:
            refused += row.due
    return chosen, refused, at, False


def _scan(
    connection: Connection,
    job_type: str,
    cursor: str,
    until: str | None,
    wanted: int,
    limit: int,
    now: datetime,
    ids: IdRange,
) -> Sequence[Row[Any]]:
    return connection.execute(
        statement("due_tenants"),
        {
            "job_type": job_type,
            "cursor": cursor,
            "until": until,
            "wanted": wanted,
            "scan_limit": limit,
            "now": now,
            "id_low": ids.low,
            "id_high": ids.high,
        },
    ).all()


def tenants_in_flight(connection: Connection, job_type: str) -> Mapping[str, int]:
    """Return how many claimed rows each tenant has of a job type."""
    rows = connection.execute(statement("tenants_in_flight"), {"job_type": job_type})
    return {row.tenant_id: row.in_flight for row in rows}


def due_by_tenant(
    connection: Connection, job_type: str, bounds: Mapping[str, int], now: datetime, ids: IdRange
) -> dict[str, int]:
    """Return how many due rows each given tenant has, counted up to its bound."""
    rows = connection.execute(
        statement("due_by_tenant"),
        {
            "tenants": list(bounds),
            "bounds": list(bounds.values()),
            "job_type": job_type,
            "now": now,
            "id_low": ids.low,
            "id_high": ids.high,
        },
    )
    return {row.tenant_id: row.due for row in rows}
