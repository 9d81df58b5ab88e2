"""Claims: taking due rows, the outbox of what must be handed over, the start fence, the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, text

from cronless_dagster.scheduling.zones import utc
from cronless_dagster.store.errors import ClaimLost
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from cronless_dagster.scheduling.shards import IdRange


@dataclass(frozen=True, slots=True)
class Claim:
    """The rows of one job type taken together by one tick; `id` is the fencing token.

    `alone` on the queue route: its only job runs while nothing else runs in the worker, which may have died of it.
    """

    id: UUID
    job_type: str
    route: str
    id_low: UUID
    manual: bool
    job_count: int
    done_count: int
    failed_count: int
    state: str
    dispatches: int
    run_id: str | None
    execution_id: UUID | None
    lease_seconds: int
    lease_expires_at: datetime
    oldest_due_at: datetime | None
    handed_over_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    parent_id: UUID | None
    alone: bool = False

    @property
    def in_flight(self) -> int:
        """Rows that are claimed and not finished."""
        return max(self.job_count - self.done_count - self.failed_count, 0)

    @classmethod
    def from_row(cls, row: Row[Any]) -> Claim:
        """Build one from a row of `open_claims.sql` or `start_claim.sql`."""
        return cls(**row._asdict())


@dataclass(frozen=True, slots=True)
class Taken:
    """What one claim took: its id, how many rows, and which of them were past their misfire grace."""

    claim_id: UUID
    count: int
    misfired: tuple[UUID, ...]


class Wanted(TypedDict):
    """What a claim is to take: at most `batch_size` rows of a job type within `ids`, due at `now`."""

    job_type: str
    route: str
    batch_size: int
    lease_seconds: int
    now: datetime
    ids: IdRange


def claim_due(connection: Connection, **wanted: Unpack[Wanted]) -> Taken | None:
    """Claim at most `batch_size` due rows, the longest due first; None where nothing could be claimed."""
    return _taken(connection, "claim_due", wanted)


def claim_triggered(connection: Connection, **wanted: Unpack[Wanted]) -> Taken | None:
    """Claim rows that a person asked to run now."""
    return _taken(connection, "claim_triggered", wanted)


def claim_shares(connection: Connection, shares: dict[str, int], **wanted: Unpack[Wanted]) -> Taken | None:
    """Claim of each tenant at most its share of due rows, `batch_size` in all."""
    return _taken(connection, "claim_fair", wanted, tenants=list(shares), shares=list(shares.values()))


def _taken(connection: Connection, name: str, wanted: Wanted, **more: Any) -> Taken | None:
    claim_id = uuid4()
    parameters: dict[str, Any] = {"claim_id": claim_id, **wanted, **more}
    ids = parameters.pop("ids")
    row = connection.execute(statement(name), {**parameters, "id_low": ids.low, "id_high": ids.high}).one()
    if row.claimed == 0:
        return None
    return Taken(claim_id, row.claimed, tuple(row.misfired or ()))


def open_claims(connection: Connection) -> list[Claim]:
    """Return all claims that aren't closed, the oldest first."""
    return [Claim.from_row(row) for row in connection.execute(statement("open_claims"))]


_LOAD = text(
    "SELECT cronless.clock_now(), count(*), coalesce(sum(greatest(job_count - done_count - failed_count, 0)), 0)"
    " FROM cronless.job_claim WHERE state IN ('CLAIMED', 'SUBMITTED', 'RUNNING') AND job_type = :job_type"
)


def load_of_type(connection: Connection, job_type: str) -> tuple[datetime, int, int]:
    """Return the time, how many claims of a job type are open, and how many rows they have in flight.

    In one question, since each claim asks it.
    """
    now, claims, rows = connection.execute(_LOAD, {"job_type": job_type}).one()
    return utc(now), int(claims), int(rows)


def lock_claim(connection: Connection, claim_id: UUID) -> Claim | None:
    """Lock an open claim for the rest of the transaction; None where another dispatcher has it or it closed."""
    row = connection.execute(
        text(
            "SELECT id, job_type, route, id_low, manual, job_count, done_count, failed_count, state, dispatches,"
            " run_id, execution_id, lease_seconds, lease_expires_at, oldest_due_at, handed_over_at, created_at,"
            " started_at, parent_id, alone FROM cronless.job_claim"
            " WHERE id = :id AND state IN ('CLAIMED', 'SUBMITTED', 'RUNNING') FOR UPDATE SKIP LOCKED"
        ),
        {"id": claim_id},
    ).one_or_none()
    return None if row is None else Claim.from_row(row)


def start_claim(
    connection: Connection, claim_id: UUID, execution_id: UUID, run_id: str | None, now: datetime
) -> Claim | None:
    """Pass the start fence: the claim is RUNNING under `execution_id`. None: somebody else's, or closed."""
    row = connection.execute(
        statement("start_claim"),
        {"claim_id": claim_id, "execution_id": execution_id, "run_id": run_id, "now": now},
    ).one_or_none()
    return None if row is None else Claim.from_row(row)


def hold_claim(
    connection: Connection,
    claim_id: UUID,
    execution_id: UUID,
    now: datetime,
    *,
    done: int = 0,
    failed: int = 0,
) -> None:
    """Renew the lease and lock the claim until the transaction ends; adds to its counts.

    Raises:
        ClaimLost: The claim is closed or has another holder.
    """
    held = connection.execute(
        statement("hold_claim"),
        {"claim_id": claim_id, "execution_id": execution_id, "now": now, "done": done, "failed": failed},
    )
    if held.rowcount == 0:
        raise ClaimLost(
            f"claim {claim_id} is no longer held by {execution_id}: its lease ran out or it was ended, and what is "
            "left of it runs elsewhere"
        )


_SUBMITTED = text(
    "UPDATE cronless.job_claim SET state = 'SUBMITTED', run_id = :run_id, submitted_at = :now"
    " WHERE id = :id AND state IN ('CLAIMED', 'SUBMITTED') AND dispatches = coalesce(:dispatch, dispatches)"
)
_AGAIN = text(
    "UPDATE cronless.job_claim SET state = 'CLAIMED', run_id = NULL, dispatches = dispatches + 1"
    " WHERE id = :id AND state IN ('CLAIMED', 'SUBMITTED') AND dispatches = coalesce(:dispatch, dispatches)"
)
_TAKEN = text(
    "UPDATE cronless.job_claim SET handed_over_at = :now"
    " WHERE id = :id AND state = 'CLAIMED' AND dispatches = :dispatch"
    " AND (handed_over_at IS NULL OR handed_over_at <= :before)"
)
_HANDED = text("UPDATE cronless.job_claim SET handed_over_at = :now WHERE id = ANY (CAST(:ids AS uuid[]))")
_CLOSED = text(
    "UPDATE cronless.job_claim SET state = 'CLOSED', closed_at = :now, close_reason = :reason"
    " WHERE id = :id AND state IN ('CLAIMED', 'SUBMITTED', 'RUNNING')"
)
_COUNTED = text(
    "UPDATE cronless.job_claim SET job_count = greatest(job_count - :fewer, 0),"
    " done_count = done_count + :done, failed_count = failed_count + :failed WHERE id = :id"
)


def mark_submitted(
    connection: Connection, claim_id: UUID, run_id: str, now: datetime, *, dispatch: int | None = None
) -> None:
    """Note that a run exists for the claim; with `dispatch`, unless it was handed over anew since."""
    connection.execute(_SUBMITTED, {"id": claim_id, "run_id": run_id, "now": now, "dispatch": dispatch})


def hand_over_again(connection: Connection, claim_id: UUID, dispatch: int | None = None) -> None:
    """Note that the claim's run ended before it started the claim: it gets a new one, under a new run key.

    With `dispatch`, unless somebody else has noted it.
    """
    connection.execute(_AGAIN, {"id": claim_id, "dispatch": dispatch})


def take_hand_over(
    connection: Connection, claim_id: UUID, dispatch: int, now: datetime, patience: timedelta
) -> bool:
    """Take the hand-over of a claim, unless somebody took it within `patience`: true for one caller alone."""
    values = {"id": claim_id, "dispatch": dispatch, "now": now, "before": now - patience}
    return bool(connection.execute(_TAKEN, values).rowcount)


def mark_handed_over(connection: Connection, claim_ids: list[UUID], now: datetime) -> None:
    """Note when claims were last handed over: the order of the next hand-overs."""
    connection.execute(_HANDED, {"ids": claim_ids, "now": now})


def close_claim(connection: Connection, claim_id: UUID, reason: str, now: datetime) -> None:
    """End a claim that holds no more rows."""
    connection.execute(_CLOSED, {"id": claim_id, "reason": reason, "now": now})


def correct_counts(
    connection: Connection, claim_id: UUID, *, fewer: int = 0, done: int = 0, failed: int = 0
) -> None:
    """Take rows that left the claim off its count, or count outcomes that came from elsewhere."""
    connection.execute(_COUNTED, {"id": claim_id, "fewer": fewer, "done": done, "failed": failed})


def release_rows(connection: Connection, claim_id: UUID) -> int:
    """Put the claim's unstarted rows back to PENDING as they were; tombstones go for good. Returns how many."""
    rows = connection.execute(statement("release_claim"), {"claim_id": claim_id}).all()
    delete_tombstones(connection, [row.id for row in rows if row.removed])
    return len(rows)


def split_claim(connection: Connection, claim_id: UUID, group_size: int, now: datetime) -> int:
    """Cut the claim's unfinished rows in claims of `group_size`. Returns how many rows moved."""
    moved = connection.execute(
        statement("split_claim"), {"claim_id": claim_id, "group_size": group_size, "now": now}
    ).scalar_one()
    return int(moved)


def crash_alone(connection: Connection, claim: Claim, max_crashes: int, error: str, now: datetime) -> bool:
    """Count a crash on the only unfinished row of a claim. Returns whether the row is INVALID by now."""
    rows = connection.execute(
        statement("crash_alone"),
        {
            "claim_id": claim.id,
            "execution_id": claim.execution_id,
            "run_id": claim.run_id,
            "max_crashes": max_crashes,
            "error": error,
            "now": now,
            "counted": claim.route == "queue",
        },
    ).all()
    invalid = [row for row in rows if row.status == "INVALID"]
    delete_tombstones(connection, [row.id for row in invalid if row.removed])
    return bool(invalid)


_DELETE = text(
    "DELETE FROM cronless.scheduled_job WHERE id = ANY (CAST(:ids AS uuid[])) AND claim_id IS NULL"
)


def delete_tombstones(connection: Connection, ids: list[UUID]) -> None:
    """Delete removed rows whose claim has ended."""
    if ids:
        connection.execute(_DELETE, {"ids": ids})


_REQUEUE = text(
    "UPDATE cronless.scheduled_job SET status = 'QUEUED', execution_id = NULL, lease_expires_at = NULL,"
    " attempt = greatest(attempt - CASE WHEN serving_manual THEN 1 ELSE 0 END, 0),"
    " plan_count = plan_count + 1 WHERE id = ANY (ARRAY("
    "SELECT id FROM cronless.scheduled_job"
    " WHERE status IN ('QUEUED', 'RUNNING') AND claim_id = :id AND status = 'RUNNING' AND report IS NULL"
    " AND lease_expires_at < :now FOR UPDATE SKIP LOCKED))"
)
_STARTED = text(
    "SELECT EXISTS (SELECT 1 FROM cronless.scheduled_job"
    " WHERE status IN ('QUEUED', 'RUNNING') AND claim_id = :id AND status = 'RUNNING')"
)


def requeue_lapsed_jobs(connection: Connection, claim_id: UUID, now: datetime) -> bool:
    """Take jobs that were started one by one from holders whose lease ran out; tell whether others run on.

    A row that is locked runs on: its holder may be finishing it after all, and be waiting for the claim.
    """
    connection.execute(_REQUEUE, {"id": claim_id, "now": now})
    return bool(connection.execute(_STARTED, {"id": claim_id}).scalar_one())


_UNFINISHED = text(
    "SELECT count(*) FROM (SELECT 1 FROM cronless.scheduled_job"
    " WHERE status IN ('QUEUED', 'RUNNING') AND claim_id = :id LIMIT :most) AS unfinished"
)


def unfinished_rows(connection: Connection, claim_id: UUID, most: int = 1_000_000_000) -> int:
    """Count the rows that the claim still holds, at most `most`."""
    return int(connection.execute(_UNFINISHED, {"id": claim_id, "most": most}).scalar_one())
