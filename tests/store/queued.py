"""Short ways to claim jobs for the queue route, and to start and finish them as its workers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cronless_dagster.scheduling.models import RetryPolicy
from cronless_dagster.scheduling.planner import plan_next
from cronless_dagster.store import executions, outbox
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.executions import Start, Started
from cronless_dagster.store.results import Result
from tests.store.rows import NOW, SUCCESS, claim, due_row, sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Engine

    from cronless_dagster.scheduling.models import Outcome
    from cronless_dagster.store.rows import ClaimedJob

LEASE = 600
"""Seconds; that of the claims that `tests.store.rows.claim` makes, too."""


def queued(engine: Engine, count: int = 1, now: datetime = NOW, **columns: Any) -> tuple[UUID, list[UUID]]:
    """Make so many jobs due and claim them for the queue; returns the claim's id and the jobs', sorted."""
    ids = sorted(due_row(engine, now, **columns) for _ in range(count))
    claim_id = claim(engine, now, route="queue", job_type=columns.get("job_type", "digest"))
    assert claim_id is not None
    return claim_id, ids


def messages(token: UUID, ids: Iterable[UUID]) -> list[Start]:
    """Return what messages of a claim ask for, each under a fresh execution id."""
    return [Start(one, token, uuid4()) for one in ids]


def begin(engine: Engine, asked: Sequence[Start], now: datetime = NOW, lease: int = LEASE) -> Started:
    """Pass the start fence in a transaction of its own."""
    with transaction(engine) as connection:
        now = current_time(connection, now)
        return executions.start_jobs(connection, asked, lease, now, RetryPolicy())


def renew(engine: Engine, jobs: Sequence[ClaimedJob], now: datetime, lease: int = LEASE) -> set[UUID]:
    """Renew the leases."""
    with transaction(engine) as connection:
        return executions.renew_jobs(connection, jobs, lease, current_time(connection, now))


def give_back(engine: Engine, jobs: Sequence[ClaimedJob], now: datetime = NOW) -> set[UUID]:
    """Give jobs back whose handler was never called."""
    with transaction(engine) as connection:
        return executions.give_back(connection, jobs, current_time(connection, now))


def results_of(jobs: Sequence[ClaimedJob], outcome: Outcome = SUCCESS, now: datetime = NOW) -> list[Result]:
    """Return the same outcome for each job, with what follows."""
    return [Result(job, plan_next(job.plan, outcome, now), outcome.error, now) for job in jobs]


def finish(
    engine: Engine, jobs: Sequence[ClaimedJob], outcome: Outcome = SUCCESS, now: datetime = NOW
) -> tuple[set[UUID], list[Result]]:
    """Write the same outcome for each job."""
    with transaction(engine) as connection:
        now = current_time(connection, now)
        return executions.finish_started(connection, results_of(jobs, outcome, now), now)


def dispatched(engine: Engine, claim_id: UUID, now: datetime = NOW, dispatch: int = 0) -> None:
    """Let all messages of a claim be confirmed."""
    with transaction(engine) as connection:
        outbox.mark_dispatched(connection, claim_id, dispatch, current_time(connection, now))


def waiting(engine: Engine, claim_id: UUID, now: datetime = NOW) -> outbox.QueuedClaim:
    """Return what an open claim waits for."""
    with transaction(engine) as connection:
        return outbox.queued_claims(connection, current_time(connection, now))[claim_id]


def where(engine: Engine, claim_id: UUID) -> dict[str, int]:
    """Count the rows that a claim holds, by their state."""
    rows = sql(
        engine,
        "SELECT status, count(*) AS number FROM cronless.scheduled_job WHERE claim_id = :id GROUP BY status",
        id=claim_id,
    )
    return {one.status: one.number for one in rows}
