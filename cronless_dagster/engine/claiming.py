"""Claiming the due rows of one job type: plain or fair, misfires decided in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cronless_dagster.scheduling.limits import rows_for_tenant, rows_to_claim
from cronless_dagster.scheduling.misfires import Replan, ServeOccurrence, decide_misfire
from cronless_dagster.store import claims as store
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import follow_index_order, transaction
from cronless_dagster.store.fairness import (
    TENANTS_A_CLAIM,
    Waiting,
    due_tenants,
    more_due_than,
    tenants_in_flight,
)
from cronless_dagster.store.history import Missed, record_missed, with_partition
from cronless_dagster.store.planning import replan_claimed, serve_instead, take_misfired
from cronless_dagster.store.rows import planned_job

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection, Engine

    from cronless_dagster.engine.job_types import JobType
    from cronless_dagster.scheduling.models import Plan
    from cronless_dagster.scheduling.shards import IdRange


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What one claim took.

    Attributes:
        rows: Rows of the claim after its misfires were decided.
        misfired: Rows that were past their grace.
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
) -> ClaimResult:
    """Make one claim of a job type: a person's requests first, then due rows.

    Two dispatchers at once may each go over a limit by one batch: each reads the counts anew for each claim,
    but not those of a claim that isn't committed yet.
    """

    def write() -> ClaimResult:
        with transaction(engine) as connection:
            at = current_time(connection, now)
            open_claims, in_flight = store.load_of_type(connection, job_type.name)
            allowance = rows_to_claim(
                job_type.batch_size, in_flight, open_claims, job_type.batch_size, job_type.limits
            )
            if allowance.rows == 0:
                return ClaimResult(0, 0, None, allowance.reason)
            follow_index_order(connection)
            manual = _take_triggered(connection, job_type, waiting, route, ids, at, allowance.rows)
            if manual is not None:
                return ClaimResult(manual.count, 0, manual.claim_id, None, manual=True)
            taken = _take(connection, job_type, waiting, route, ids, at, allowance.rows)
            if taken is None:
                return ClaimResult(0, 0, None, None)
            left = _decide_misfires(connection, job_type, taken, at)
            return ClaimResult(left, len(taken.misfired), taken.claim_id if left else None, None)

    return with_partition(engine, now, write)


def _take_triggered(
    connection: Connection,
    job_type: JobType,
    waiting: Waiting,
    route: str,
    ids: IdRange,
    now: datetime,
    rows: int,
) -> store.Taken | None:
    if waiting.triggered_since is None:
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
    waiting: Waiting,
    route: str,
    ids: IdRange,
    now: datetime,
    rows: int,
) -> store.Taken | None:
    name, lease = job_type.name, job_type.lease_seconds
    if waiting.due_since is None:
        return None
    if job_type.limits.per_tenant is None and not more_due_than(connection, name, rows, now, ids):
        return store.claim_due(
            connection, job_type=name, route=route, batch_size=rows, lease_seconds=lease, now=now, ids=ids
        )
    shares = _shares(connection, job_type, now, rows, ids)
    if not shares:
        return None
    return store.claim_shares(
        connection, shares, job_type=name, route=route, batch_size=rows, lease_seconds=lease, now=now, ids=ids
    )


def _shares(
    connection: Connection, job_type: JobType, now: datetime, rows: int, ids: IdRange
) -> dict[str, int]:
    """Return how many rows each of the next due tenants may get: equal parts of the batch, at least one."""
    in_flight = tenants_in_flight(connection, job_type.name) if job_type.limits.per_tenant else {}
    tenants = due_tenants(connection, job_type.name, min(TENANTS_A_CLAIM, rows), now, ids)
    if not tenants:
        return {}
    # Together no more than the batch: shares that were rounded up would leave the last tenants without any.
    equal, rest = divmod(rows, len(tenants))
    shares = {
        tenant: rows_for_tenant(equal + (place < rest), in_flight.get(tenant, 0), job_type.limits)
        for place, tenant in enumerate(tenants)
    }
    return {tenant: share for tenant, share in shares.items() if share > 0}


def _decide_misfires(connection: Connection, job_type: JobType, taken: store.Taken, now: datetime) -> int:
    """Decide the rows past their grace, just claimed and so locked; returns how many rows the claim keeps."""
    if not taken.misfired:
        return taken.count
    serve: list[tuple[UUID, ServeOccurrence]] = []
    leave: list[tuple[UUID, Plan]] = []
    missed: list[Missed] = []
    for row in take_misfired(connection, taken.misfired):
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
    record_missed(connection, missed, now)
    return _kept(connection, taken, leave, now)


def _kept(connection: Connection, taken: store.Taken, leave: Sequence[object], now: datetime) -> int:
    kept = taken.count - len(leave)
    if leave:
        store.correct_counts(connection, taken.claim_id, fewer=len(leave))
    if kept == 0:
        store.close_claim(connection, taken.claim_id, "misfired", now)
    return kept
