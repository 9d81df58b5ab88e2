"""Claiming the due rows of one job type: plain or fair, misfires decided in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cronless_dagster.scheduling.limits import (
    equal_shares,
    rows_for_requests,
    rows_for_tenant,
    rows_to_claim,
)
from cronless_dagster.scheduling.misfires import Replan, ServeOccurrence, decide_misfire
from cronless_dagster.store import claims as store
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.fairness import (
    TENANTS_A_CLAIM,
    Waiting,
    due_by_tenant,
    due_tenants,
    more_due_than,
    tenants_in_flight,
)
from cronless_dagster.store.history import Missed, record_missed, with_partition
from cronless_dagster.store.planning import replan_claimed, serve_instead, take_misfired, undo_claim
from cronless_dagster.store.rows import planned_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection, Engine

    from cronless_dagster.engine.job_types import JobType
    from cronless_dagster.scheduling.limits import Limits
    from cronless_dagster.scheduling.models import Plan
    from cronless_dagster.scheduling.shards import IdRange


# What one tenant has not due enlarges the others' shares, and these may be more than they have due.
_COUNTS = 3


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What one claim took.

    Attributes:
        rows: Rows of the claim after its misfires were decided.
        misfired: Rows that were past their grace and were decided.
        claim_id: None where nothing was claimed.
        manual: People asked for these rows; what is due was not looked at.
        reason: Why nothing was claimed, or why rows were left.
    """

    rows: int
    misfired: int
    claim_id: UUID | None
    reason: str | None
    manual: bool = False


def claim_one(
    engine: Engine,
    job_type: JobType,
    waiting: Waiting,
    *,
    route: str,
    ids: IdRange,
    now: datetime | None,
    requests: bool = True,
    more: Callable[[], bool] = lambda: True,
) -> ClaimResult:
    """Make one claim of a job type: a person's requests first, then due rows.

    Requests leave room to what is due, and `requests` false leaves them out where something is. What is long to
    do stops when `more` says so: rows past their grace that aren't decided by then stay due.

    Two dispatchers at once may each go over a limit by one batch: each reads the counts anew for each claim,
    but not those of a claim that isn't committed yet.
    """

    def write() -> ClaimResult:
        with transaction(engine, index_order=True) as connection:
            if now is not None:
                current_time(connection, now)
            limits = job_type.bounds(route)
            at, open_claims, in_flight = store.load_of_type(connection, job_type.name)
            allowance = rows_to_claim(
                job_type.batch_size, in_flight, open_claims, job_type.batch_size, limits
            )
            if allowance.rows == 0:
                return ClaimResult(0, 0, None, allowance.reason)
            if waiting.triggered_since is not None and (requests or waiting.due_since is None):
                asked = rows_for_requests(
                    allowance.rows, open_claims, limits, waiting.triggered_since, waiting.due_since
                )
                manual = _take_triggered(connection, job_type, route, ids, at, asked)
                if manual is not None:
                    return ClaimResult(manual.count, 0, manual.claim_id, None, manual=True)
            if waiting.due_since is None:
                return ClaimResult(0, 0, None, None)
            taken, reason = _take(
                connection, job_type, route, ids, at, allowance.rows, more, backlog=waiting.backlog
            )
            if taken is None:
                return ClaimResult(0, 0, None, reason)
            return _decide_misfires(connection, job_type, taken, at, more)

    return with_partition(engine, now, write)


def _take_triggered(
    connection: Connection, job_type: JobType, route: str, ids: IdRange, now: datetime, rows: int
) -> store.Taken | None:
    if rows == 0:
        return None
    return store.claim_triggered(
        connection,
        job_type=job_type.name,
        route=route,
        batch_size=rows,
        lease_seconds=job_type.lease_seconds,
        now=now,
        ids=ids,
    )


def _take(
    connection: Connection,
    job_type: JobType,
    route: str,
    ids: IdRange,
    now: datetime,
    rows: int,
    more: Callable[[], bool],
    *,
    backlog: bool | None,
) -> tuple[store.Taken | None, str | None]:
    """Claim due rows; returns them, or why there are none although some may be due."""
    limit = job_type.bounds(route).per_tenant
    wanted: store.Wanted = {
        "job_type": job_type.name,
        "route": route,
        "batch_size": rows,
        "lease_seconds": job_type.lease_seconds,
        "now": now,
        "ids": ids,
    }
    if backlog is None:
        backlog = limit is not None or more_due_than(connection, job_type.name, rows, now, ids)
    if limit is not None or backlog:
        shares, reason = _shares(connection, job_type, job_type.bounds(route), now, rows, ids, more)
        if shares:
            return store.claim_shares(connection, shares, **wanted), None
        if limit is not None:
            return None, reason
        # What is due belongs to tenants beyond those that were looked at: late is worse than unfair.
    return store.claim_due(connection, **wanted), None


def _shares(
    connection: Connection,
    job_type: JobType,
    limits: Limits,
    now: datetime,
    rows: int,
    ids: IdRange,
    more: Callable[[], bool],
) -> tuple[dict[str, int], str | None]:
    """Return how many rows each of the next due tenants gets, or why there are none.

    Equal parts of the batch; what a tenant has not due or may not have goes to the others.
    """
    in_flight = tenants_in_flight(connection, job_type.name) if limits.per_tenant else {}

    def most(tenant: str) -> int:
        return rows_for_tenant(rows, in_flight.get(tenant, 0), limits)

    found = due_tenants(
        connection,
        job_type.name,
        min(TENANTS_A_CLAIM, rows),
        now,
        ids,
        accepts=lambda tenant: most(tenant) > 0,
        more=more,
    )
    if not found.tenants:
        if found.passed_over:
            return {}, f"its due tenants have reached their limit of {limits.per_tenant} jobs in flight"
        return {}, None if found.whole else "not all of its tenants could be looked at"
    usable = {tenant: most(tenant) for tenant in found.tenants}
    return _filled_up(connection, job_type.name, usable, rows, now, ids), None


def _filled_up(
    connection: Connection, job_type: str, usable: dict[str, int], rows: int, now: datetime, ids: IdRange
) -> dict[str, int]:
    """Share the batch out by what each tenant has due, which is counted no further than its share goes."""
    usable = dict(usable)
    uncounted = set(usable)
    for _ in range(_COUNTS):
        shares = equal_shares(usable, rows)
        largest = max(shares.values())
        bounds = {tenant: min(largest, usable[tenant]) for tenant in uncounted}
        if largest == 1 or not bounds:
            # Each has one due row at least.
            break
        counted = due_by_tenant(connection, job_type, bounds, now, ids)
        short = {tenant: due for tenant, due in counted.items() if due < bounds[tenant]}
        if not short:
            break
        usable |= short
        uncounted -= short.keys()
    return {tenant: share for tenant, share in equal_shares(usable, rows).items() if share > 0}


def _decide_misfires(
    connection: Connection,
    job_type: JobType,
    taken: store.Taken,
    now: datetime,
    more: Callable[[], bool],
) -> ClaimResult:
    """Decide the rows past their grace, just claimed and so locked, as long as there is time."""
    serve: list[tuple[UUID, ServeOccurrence]] = []
    leave: list[tuple[UUID, Plan]] = []
    undecided: list[UUID] = []
    missed: list[Missed] = []
    for row in take_misfired(connection, taken.misfired) if taken.misfired else ():
        # A schedule may take its time to compute.
        if undecided or not more():
            undecided.append(row.id)
            continue
        decision = decide_misfire(planned_job(row, job_type.retry), now)
        if isinstance(decision, Replan):
            leave.append((row.id, decision.plan))
            stretch = decision.plan.missed
        else:
            if (decision.scheduled_for, decision.attempt) != (row.scheduled_for, row.attempt):
                serve.append((row.id, decision))
            stretch = decision.missed
        if stretch is not None:
            missed.append(Missed(row.id, row.tenant_id, row.job_type, stretch))
    serve_instead(connection, serve)
    replan_claimed(connection, leave)
    undo_claim(connection, undecided)
    record_missed(connection, missed, now)
    kept = taken.count - len(leave) - len(undecided)
    if kept < taken.count:
        store.correct_counts(connection, taken.claim_id, fewer=taken.count - kept)
    if kept == 0:
        store.close_claim(connection, taken.claim_id, "misfired" if leave else "released", now)
    return ClaimResult(
        kept,
        len(taken.misfired) - len(undecided),
        taken.claim_id if kept else None,
        "the tick's time is up" if undecided else None,
    )
