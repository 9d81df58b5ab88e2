"""Following the runs of users' own Dagster jobs.

Here the run is the work, and knows nothing of claims: what it came to is recorded by the tick that sees its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from uuid import UUID

from cronless_dagster.scheduling.planner import plan_next
from cronless_dagster.store import claims as store
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.errors import ClaimLost
from cronless_dagster.store.history import with_partition
from cronless_dagster.store.loading import load_page
from cronless_dagster.store.results import Result, finish_jobs, lock_finished

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.engine.runs import RunView
    from cronless_dagster.scheduling.models import Outcome, RetryPolicy

# A run that fails before it begins is no try of the job's, for about an hour; what fails at every launch, as one with a
# resource that can't be made does, must be told in the end.
LAUNCHES = 6

Action = Literal["keep", "submitted", "again", "cancel", "died", "started", "renew", "ended"]


def decide(  # noqa: PLR0911 - a table of cases, one return each
    claim: store.Claim, runs: Sequence[RunView], now: datetime
) -> tuple[Action, RunView | None]:
    """Decide what becomes of an open claim, given its runs; one that still works speaks for all.

    A run that a person executes again keeps its tags, and counts like any other until the claim is closed. One that
    never began says something of its own hand-over only: no process began the work, for want of a code server perhaps.
    """
    alive = next((run for run in runs if not run.ended), None)
    if alive is not None:
        if claim.state == "RUNNING":
            return "renew", alive
        if alive.state == "started":
            return "started", alive
        same = claim.state == "SUBMITTED" and claim.run_id == alive.run_id
        return ("keep" if same else "submitted"), alive
    for ended in sorted(runs, key=lambda run: ("success", "canceled", "failure").index(run.state)):
        if ended.state == "canceled":
            return "cancel", ended
        if ended.state == "success" or ended.started_at is not None:
            return "ended", ended
    if claim.state == "RUNNING":
        # The run that had begun was deleted by a person.
        return ("died" if claim.lease_expires_at < now else "keep"), None
    unlaunched = next((run for run in runs if run.dispatch == claim.dispatches), None)
    if unlaunched is not None and claim.dispatches >= LAUNCHES - 1:
        return "ended", unlaunched
    # No run of this hand-over: never made, or deleted by a person before it began.
    return ("again" if unlaunched is not None or claim.state == "SUBMITTED" else "keep"), None


def follow(
    engine: Engine, claim: store.Claim, action: Action, run: RunView, now: datetime | None
) -> str | None:
    """Follow a run that works: note its start, and hold the claim for it as long as Dagster calls it alive.

    A run whose processes died is ended by Dagster's run monitoring, not by a lease: the claim has no other holder.
    """
    with transaction(engine) as connection:
        at = current_time(connection, now)
        if action == "started":
            started = store.start_claim(connection, claim.id, UUID(run.run_id), run.run_id, at)
            return None if started is None else "submitted"
        try:
            store.hold_claim(connection, claim.id, claim.execution_id or UUID(run.run_id), at)
        except ClaimLost:
            return None
    return None


def record(
    engine: Engine,
    claim: store.Claim,
    retry: RetryPolicy,
    outcome: Outcome,
    now: datetime | None,
    *,
    run: RunView | None = None,
) -> str | None:
    """Record what the claim's job came to, plan its next occurrence, close the claim.

    Returns:
        "recorded"; None where another dispatcher was first, or somebody holds the row: then the next tick does it.
    """

    def write() -> str | None:
        with transaction(engine) as connection:
            at = current_time(connection, now)
            locked = store.lock_claim(connection, claim.id)
            if locked is None or locked.dispatches != claim.dispatches:
                return None
            jobs = load_page(connection, claim.id, UUID(int=0), locked.job_count + 1, retry)
            results = [
                Result(job, plan_next(job.plan, outcome, at), outcome.error, run.started_at if run else None)
                for job in jobs
            ]
            free, held = lock_finished(connection, results)
            accepted = finish_jobs(
                connection,
                free,
                at,
                run_id=run.run_id if run else None,
                holder=UUID(run.run_id) if run else None,
            )
            done = len(accepted) if outcome.kind == "success" else 0
            store.correct_counts(connection, claim.id, done=done, failed=len(accepted) - done)
            if held:
                return None
            store.close_claim(connection, claim.id, "done", at)
            return "recorded"

    return with_partition(engine, now, write)
