"""The queue route's side of the outbox: which messages a claim still has to send, what its jobs wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, text

from cronless_dagster.store.claims import correct_counts, delete_tombstones
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from datetime import datetime, timedelta


class Outgoing(NamedTuple):
    """A claimed job as its message tells of it; `scheduled_for` is the occurrence that is served (UTC)."""

    job_id: UUID
    tenant_id: str
    scheduled_for: datetime


@dataclass(frozen=True, slots=True)
class QueuedClaim:
    """What an open claim of the queue route waits for.

    Attributes:
        submitted_at: When the last of its messages was confirmed.
        queued: Jobs that nobody has started.
        running: Jobs that somebody has.
        lapsed: Those of them whose lease has run out.
        overtaken: Jobs of a claim that was made a lease after that have started.
    """

    id: UUID
    submitted_at: datetime | None
    queued: int
    running: int
    lapsed: int
    overtaken: bool


_NIL = UUID(int=0)
_TAKE = text(
    "UPDATE cronless.job_claim SET handed_over_at = :now"
    " WHERE id = :id AND state = 'CLAIMED' AND dispatches = :dispatch"
    " AND (handed_over_at IS NULL OR handed_over_at <= :given_up)"
    " RETURNING published_to"
)
_PROGRESS = text(
    "UPDATE cronless.job_claim SET handed_over_at = :now, published_to = :published_to"
    " WHERE id = :id AND state = 'CLAIMED' AND dispatches = :dispatch"
)
_LEAVE = text(
    "UPDATE cronless.job_claim SET handed_over_at = NULL"
    " WHERE id = :id AND state = 'CLAIMED' AND dispatches = :dispatch"
)
_CONFIRMED = text(
    "UPDATE cronless.job_claim SET state = 'SUBMITTED', submitted_at = :now"
    " WHERE id = :id AND state = 'CLAIMED' AND dispatches = :dispatch"
)
_AGAIN = text(
    "UPDATE cronless.job_claim SET state = 'CLAIMED', dispatches = dispatches + 1, published_to = NULL,"
    " handed_over_at = NULL WHERE id = :id AND state IN ('CLAIMED', 'SUBMITTED')"
)


def take_outgoing(
    connection: Connection, claim_id: UUID, dispatch: int, now: datetime, patience: timedelta
) -> UUID | None:
    """Take a claim whose messages are to be sent; None where another dispatcher is at it, or it needs none.

    Returns:
        The id of the last job whose message is confirmed; the nil UUID: none yet.
    """
    row = connection.execute(
        _TAKE, {"id": claim_id, "dispatch": dispatch, "now": now, "given_up": now - patience}
    ).one_or_none()
    return None if row is None else row.published_to or _NIL


def outgoing(connection: Connection, claim_id: UUID, after: UUID, most: int) -> list[Outgoing]:
    """Return the next page of a claim's unstarted jobs, by id."""
    rows = connection.execute(
        statement("load_messages"), {"claim_id": claim_id, "after_id": after, "page_size": most}
    )
    return [Outgoing._make(row) for row in rows]


def note_confirmed(connection: Connection, claim_id: UUID, dispatch: int, last: UUID, now: datetime) -> bool:
    """Note that all messages up to a job's are confirmed; False: the claim is no longer to be sent."""
    given = {"id": claim_id, "dispatch": dispatch, "published_to": last, "now": now}
    return connection.execute(_PROGRESS, given).rowcount > 0


def leave_outgoing(connection: Connection, claim_id: UUID, dispatch: int) -> None:
    """Let any dispatcher go on where this one stopped."""
    connection.execute(_LEAVE, {"id": claim_id, "dispatch": dispatch})


def mark_dispatched(connection: Connection, claim_id: UUID, dispatch: int, now: datetime) -> None:
    """Note that all messages of a claim are confirmed."""
    connection.execute(_CONFIRMED, {"id": claim_id, "dispatch": dispatch, "now": now})


def publish_again(connection: Connection, claim_id: UUID) -> None:
    """Note that messages of a claim were lost: what nobody has started is published anew, with the same token."""
    connection.execute(_AGAIN, {"id": claim_id})


def queued_claims(connection: Connection, now: datetime) -> dict[UUID, QueuedClaim]:
    """Return what the open claims of the queue route wait for, by claim."""
    rows = connection.execute(statement("queued_claims"), {"now": now})
    return {row.id: QueuedClaim(**row._asdict()) for row in rows}


def split_lapsed(connection: Connection, claim_id: UUID, group_size: int, now: datetime) -> int:
    """Put started jobs whose lease ran out into claims of `group_size`. Returns how many jobs."""
    given = {"claim_id": claim_id, "group_size": group_size, "now": now}
    moved = connection.execute(statement("split_lapsed"), given).scalar_one()
    correct_counts(connection, claim_id, fewer=moved)
    return int(moved)


_REFUSED = text(
    "UPDATE cronless.scheduled_job SET status = 'INVALID', claim_id = NULL, invalid_reason = :reason,"
    " plan_count = plan_count + 1 WHERE id = :job_id AND claim_id = :claim_id AND status = 'QUEUED'"
    " RETURNING id, removed_at IS NOT NULL AS removed"
)


def refuse_outgoing(connection: Connection, claim_id: UUID, job_id: UUID, reason: str) -> None:
    """Take a job out of its claim whose message can't be written."""
    refused = connection.execute(_REFUSED, {"job_id": job_id, "claim_id": claim_id, "reason": reason}).all()
    delete_tombstones(connection, [row.id for row in refused if row.removed])
    correct_counts(connection, claim_id, fewer=len(refused))
