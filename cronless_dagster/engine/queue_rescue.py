"""The queue route's rescue: what was lost on its way to a worker, and what a worker died with.

Messages are only wake-ups: a copy too many is refused by the start fence, so that what may be lost is published
again with the same token, once, and only then goes back to the table.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from cronless_dagster.engine.reconciling import group_size
from cronless_dagster.engine.rescue import MAX_CRASHES
from cronless_dagster.store import claims as store
from cronless_dagster.store import outbox
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.history import with_partition

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Engine

    from cronless_dagster.store.claims import Claim
    from cronless_dagster.store.outbox import QueuedClaim

QueueAction = Literal["keep", "close", "again", "release"]


def decide_queued(
    claim: Claim, held: QueuedClaim, empty_since: datetime | None, now: datetime, *, served: bool = True
) -> QueueAction:
    """Decide what becomes of the jobs of an open claim that nobody has started.

    Queues are first in, first out: they count as lost once jobs dispatched a lease later have started, or once
    the queue has been empty for a lease, in which time no worker holds a message unstarted. A backlog is neither.
    They are published once more, and then go back; what is to run alone is published until somebody has started it.

    Args:
        claim: Of the queue route.
        held: What it waits for.
        empty_since: Since when the job type's queue has been empty; None: it isn't.
        now: The tick's instant.
        served: Whether the job type is on the queue route still; else its jobs go back after a lease.
    """
    if held.queued + held.running == 0:
        return "close"
    if held.queued == 0:
        return "keep"
    lease = timedelta(seconds=claim.lease_seconds)
    if not served:
        return "release" if (held.submitted_at or claim.created_at) + lease < now else "keep"
    if claim.state == "CLAIMED" or held.submitted_at is None:
        # Not all confirmed: the next publishing goes on with it.
        return "keep"
    drained = empty_since is not None and max(empty_since, held.submitted_at) + lease < now
    if not held.overtaken and not drained:
        return "keep"
    # One that runs alone may be passed over for as long as every worker is busy, and must not come back in company.
    return "again" if claim.dispatches == 0 or claim.alone else "release"


def carry_out_queued(engine: Engine, claim: Claim, action: QueueAction, now: datetime | None) -> str | None:
    """Carry out one action; returns what happened for the report, None where another dispatcher was first."""

    def write() -> str | None:
        with transaction(engine) as connection:
            at = current_time(connection, now)
            locked = store.lock_claim(connection, claim.id)
            if locked is None or (locked.state, locked.dispatches) != (claim.state, claim.dispatches):
                return None
            if action == "again":
                outbox.publish_again(connection, claim.id)
                return "again"
            if action == "release":
                fewer = store.release_rows(connection, claim.id)
                store.correct_counts(connection, claim.id, fewer=fewer)
            if store.unfinished_rows(connection, claim.id, most=1) == 0:
                store.close_claim(connection, claim.id, "released" if action == "release" else "done", at)
            return "released" if action == "release" else "closed"

    return with_partition(engine, now, write)


def rescue_lapsed(engine: Engine, claim: Claim, lapsed: int, now: datetime | None) -> str | None:
    """Take started jobs from workers whose lease on them ran out; returns what happened for the report.

    As a dead run's: in groups of a tenth, then singly and alone, so that a job that kills its worker takes fewer and
    fewer along, and what ran beside it is soon done.
    """

    def write() -> str | None:
        with transaction(engine) as connection:
            at = current_time(connection, now)
            locked = store.lock_claim(connection, claim.id)
            if locked is None:
                return None
            if locked.alone:
                return _crashed(connection, locked, at)
            if outbox.split_lapsed(connection, claim.id, group_size(lapsed), at) == 0:
                return None
            if store.unfinished_rows(connection, claim.id, most=1) == 0:
                store.close_claim(connection, claim.id, "split", at)
            return "split"

    return with_partition(engine, now, write)


def _crashed(connection: Connection, claim: Claim, now: datetime) -> str | None:
    if store.requeue_lapsed_jobs(connection, claim.id, now):
        # Its holder renewed the lease after all.
        return None
    error = "its worker died while it ran alone, or lost the database for longer than the lease"
    if store.crash_alone(connection, claim, MAX_CRASHES, error, now):
        store.close_claim(connection, claim.id, "invalid", now)
        return "crashed"
    # A token of its own again, so that nothing of the dead worker's can be taken for the next one's.
    store.split_claim(connection, claim.id, 1, now)
    store.close_claim(connection, claim.id, "crashed", now)
    return "crashed"
