"""A subscription's row and how it changes: asked for, granted, denied, left, ended.

Each change is made in the caller's transaction. Whoever changes a subscription and its scheduled job locks the
subscription first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sqlalchemy import Connection, text

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

Status = Literal["new", "requested", "active", "denied", "leaving", "ended"]

_FIND = (
    "SELECT id, tenant_id, topic, hub, secret, status, requested_at, unanswered, expires_at, job_id, error"
    " FROM cronless_assets.subscription WHERE id = :id"
)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A row of `cronless_assets.subscription`; instants are aware UTC."""

    id: UUID
    tenant_id: str
    topic: str
    hub: str
    secret: str = field(repr=False)
    status: Status
    requested_at: datetime | None
    unanswered: int
    expires_at: datetime | None
    job_id: UUID | None
    error: str | None

    def is_leased(self, now: datetime) -> bool:
        """Tell whether the hub's last lease still lasts."""
        return self.expires_at is not None and self.expires_at > now

    def takes_content(self, now: datetime) -> bool:
        """Tell whether what the hub delivers is wanted: within a lease, also while it is being renewed."""
        return self.status in ("requested", "active") and self.is_leased(now)

    def is_over(self, now: datetime) -> bool:
        """Tell whether there is nothing left to ask of the hub: it has ended, or has left and its lease with it."""
        return self.status == "ended" or (self.status == "leaving" and not self.is_leased(now))


def find(connection: Connection, subscription_id: UUID, *, lock: bool = False) -> Subscription | None:
    """Return a subscription, or None; locked, nobody else changes it until the transaction ends."""
    row = connection.execute(
        text(_FIND + (" FOR UPDATE" if lock else "")), {"id": subscription_id}
    ).one_or_none()
    return None if row is None else Subscription(*row)


def requested(connection: Connection, subscription: Subscription, job_id: UUID, now: datetime) -> None:
    """Note that the hub is about to be asked, and by which scheduled job."""
    connection.execute(
        text(
            "UPDATE cronless_assets.subscription SET requested_at = :now, job_id = :job_id,"
            " status = CASE WHEN status = 'leaving' THEN status ELSE 'requested' END WHERE id = :id"
        ),
        {"now": now, "job_id": job_id, "id": subscription.id},
    )


def still_waiting(
    connection: Connection, subscription_id: UUID, requested_at: datetime, error: str | None
) -> Subscription | None:
    """Note what the hub said to the request of that instant; None where its verdict has come meanwhile.

    Args:
        connection: A transaction of its own, begun after the request.
        subscription_id: Whose request.
        requested_at: As given to `requested`.
        error: Why the request failed; None: the hub took it, and owes us its verdict.
    """
    waiting = connection.execute(
        text(
            "UPDATE cronless_assets.subscription SET error = :error,"
            " unanswered = unanswered + CASE WHEN CAST(:error AS text) IS NULL THEN 1 ELSE 0 END"
            " WHERE id = :id AND requested_at = :requested_at AND status IN ('requested', 'leaving')"
        ),
        {"error": error, "id": subscription_id, "requested_at": requested_at},
    ).rowcount
    return find(connection, subscription_id) if waiting else None


def granted(
    connection: Connection, subscription: Subscription, lease: timedelta, renew_at: datetime, now: datetime
) -> None:
    """Begin a lease, and plan its renewal: a direct write of the instant wins over whatever is being planned."""
    connection.execute(
        text(
            "UPDATE cronless_assets.subscription SET status = 'active', verified_at = :now, expires_at = :expires_at,"
            " lease_seconds = :seconds, unanswered = 0, renewals = renewals + 1, error = NULL WHERE id = :id"
        ),
        {
            "now": now,
            "expires_at": now + lease,
            "seconds": int(lease.total_seconds()),
            "id": subscription.id,
        },
    )
    connection.execute(
        text("UPDATE cronless.scheduled_job SET next_run_at = :renew_at WHERE id = :job_id"),
        {"renew_at": renew_at, "job_id": subscription.job_id},
    )


def denied(connection: Connection, subscription: Subscription, reason: str) -> None:
    """Note the hub's refusal and pause the job: only a person can tell whether to ask again, by resuming it."""
    connection.execute(
        text(
            "UPDATE cronless_assets.subscription SET status = 'denied', expires_at = NULL, error = :reason"
            " WHERE id = :id"
        ),
        {"reason": reason, "id": subscription.id},
    )
    connection.execute(
        text(
            "UPDATE cronless.scheduled_job SET paused_at = coalesce(paused_at, cronless.clock_now()),"
            " pause_reason = coalesce(pause_reason, :reason) WHERE id = :job_id"
        ),
        {"reason": f"the hub denied the subscription: {reason}", "job_id": subscription.job_id},
    )


def ended(connection: Connection, subscription: Subscription) -> None:
    """End a subscription and remove its job; one that is running right now is gone once it finishes."""
    connection.execute(
        text(
            "UPDATE cronless_assets.subscription SET status = 'ended', expires_at = NULL, error = NULL WHERE id = :id"
        ),
        {"id": subscription.id},
    )
    connection.execute(
        text("DELETE FROM cronless.scheduled_job WHERE id = :job_id"), {"job_id": subscription.job_id}
    )


def ignored(connection: Connection, subscription: Subscription) -> None:
    """Count a delivery that carries no valid signature."""
    connection.execute(
        text("UPDATE cronless_assets.subscription SET ignored = ignored + 1 WHERE id = :id"),
        {"id": subscription.id},
    )
