"""Carrying out what reconciling decided, each claim in a transaction of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from cronless_dagster.engine.reconciling import Action, group_size
from cronless_dagster.scheduling.models import Outcome, RetryPolicy
from cronless_dagster.scheduling.planner import plan_next
from cronless_dagster.store import claims as store
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.history import with_partition
from cronless_dagster.store.loading import load_page
from cronless_dagster.store.results import Result, finish_jobs

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Engine

    from cronless_dagster.engine.job_types import JobTypes

MAX_CRASHES = 3
_PAGE = 1_000


def carry_out(
    engine: Engine,
    claim: store.Claim,
    action: Action,
    run_id: str | None,
    job_types: JobTypes,
    now: datetime | None,
) -> str | None:
    """Carry out one action; returns what happened for the report, None where another dispatcher was first."""

    def write() -> str | None:
        with transaction(engine) as connection:
            at = current_time(connection, now)
            locked = store.lock_claim(connection, claim.id)
            if locked is None or not _as_decided(locked, claim):
                return None
            if action == "submitted":
                store.mark_submitted(connection, claim.id, str(run_id), at)
                return "submitted"
            if action == "again":
                store.hand_over_again(connection, claim.id)
                return "again"
            if action == "release":
                store.release_rows(connection, claim.id)
                store.close_claim(connection, claim.id, "released", at)
                return "released"
            if action == "cancel":
                _cancel_rows(connection, locked, job_types, run_id, at)
                store.close_claim(connection, claim.id, "canceled", at)
                return "canceled"
            return _holder_died(connection, locked, at)

    return with_partition(engine, now, write)


def _as_decided(locked: store.Claim, seen: store.Claim) -> bool:
    # A holder that renewed its lease after it was read is alive: what was decided no longer holds.
    return (locked.state, locked.dispatches, locked.execution_id, locked.lease_expires_at) == (
        seen.state,
        seen.dispatches,
        seen.execution_id,
        seen.lease_expires_at,
    )


def _holder_died(connection: Connection, claim: store.Claim, now: datetime) -> str | None:
    """Keep the dead claim's unfinished rows apart from each other, or count the crash of the only one."""
    if store.requeue_lapsed_jobs(connection, claim.id, now):
        # Jobs with a living holder of their own, or an outcome that waits for a tick: the claim ends after them.
        return None
    unfinished = store.unfinished_rows(connection, claim.id)
    if unfinished == 0:
        store.close_claim(connection, claim.id, "done", now)
        return "closed"
    what = "split"
    # A job bears the crash only where it was claimed alone: one that is merely the last of a batch may have
    # been doing nothing yet.
    if claim.job_count == 1:
        error = f"its holder died while it ran alone (run {claim.run_id or claim.execution_id})"
        if store.crash_alone(connection, claim, MAX_CRASHES, error, now):
            store.close_claim(connection, claim.id, "invalid", now)
            return "crashed"
        what = "crashed"
    store.split_claim(connection, claim.id, group_size(unfinished), now)
    store.close_claim(connection, claim.id, what, now)
    return what


def _cancel_rows(
    connection: Connection, claim: store.Claim, job_types: JobTypes, run_id: str | None, now: datetime
) -> None:
    job_type = job_types.get(claim.job_type)
    retry = job_type.retry if job_type else RetryPolicy()
    outcome = Outcome("canceled", error="its Dagster run was canceled")
    after = UUID(int=0)
    while page := load_page(connection, claim.id, after, _PAGE, retry):
        after = page[-1].id
        results = [Result(job, plan_next(job.plan, outcome, now), outcome.error, None) for job in page]
        finish_jobs(connection, results, now, run_id=run_id, holder=claim.execution_id)
