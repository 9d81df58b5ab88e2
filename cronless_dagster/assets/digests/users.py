"""Who gets a digest, of which accounts, at which hour: what an application calls in its own transaction.

Nothing here commits. Each function takes an SQLAlchemy `Session` or `Connection`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import Connection, text

from cronless_dagster.assets.digests.addresses import address
from cronless_dagster.assets.digests.errors import DigestError
from cronless_dagster.scheduling.zones import zone
from cronless_dagster.store import jobs
from cronless_dagster.store.job_values import is_storable

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy.orm import Session

    Database: TypeAlias = "Session | Connection"

JOB_TYPE = "email_digest"
_WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAYS = {"daily": "*", "weekdays": "MON-FRI", **{day: day[:3].upper() for day in _WEEK}}
"""On which days digests can come, and how a cron line says it."""
_HOUR = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class DigestUser:
    """A row of `cronless_assets.digest_user`; whoever wrote it by plain SQL may have written anything."""

    id: UUID
    tenant_id: str
    email: str
    name: str
    timezone: str
    unsubscribed_at: datetime | None


def add_user(db: Database, *, tenant_id: str, email: str, name: str = "", timezone: str = "UTC") -> UUID:
    """Add a user and return their id, or change name and zone of the tenant's user with this address.

    Whoever has unsubscribed stays so.

    Args:
        db: The caller's session or connection.
        tenant_id: Only this tenant's accounts can be followed.
        email: Where digests go.
        name: Shown beside the address; may be empty.
        timezone: IANA name of the zone in which digests show their times.

    Raises:
        AddressError: The address or the name can't stand in a mail's header.
        TimezoneError: The zone is unknown.
        DigestError: The tenant's id can't be stored.
    """
    address(email, name)
    zone(timezone)
    if not is_storable(tenant_id) or not 0 < len(tenant_id) <= 200:
        raise DigestError(f"tenant {str(tenant_id)[:80]!r} can't be used: give a text of 1 to 200 characters")
    found: UUID = db.execute(
        text(
            "INSERT INTO cronless_assets.digest_user (tenant_id, email, name, timezone)"
            " VALUES (:tenant_id, :email, :name, :timezone) ON CONFLICT (tenant_id, email)"
            " DO UPDATE SET name = excluded.name, timezone = excluded.timezone RETURNING id"
        ),
        {"tenant_id": tenant_id, "email": email, "name": name, "timezone": timezone},
    ).scalar_one()
    return found


_USER = text(
    """
    SELECT id, tenant_id, email, name, timezone, unsubscribed_at
    FROM cronless_assets.digest_user WHERE id = :id
    """
)
_LOCKED = text(f"{_USER.text} FOR NO KEY UPDATE")
_NAMED = text(
    """
    SELECT id, tenant_id, email, name, timezone, unsubscribed_at
    FROM cronless_assets.digest_user WHERE CAST(id AS text) = ANY(:names)
    """
)


def find_user(db: Database, user_id: UUID, *, lock: bool = False) -> DigestUser:
    """Return a user.

    Args:
        db: The caller's session or connection.
        user_id: Whom.
        lock: Hold the row until the transaction ends, so that no two of the user's digests are composed at once.

    Raises:
        DigestError: There is no such user.
    """
    row = db.execute(_LOCKED if lock else _USER, {"id": user_id}).one_or_none()
    if row is None:
        raise DigestError(
            f"there is no user {user_id}: add them, or remove the scheduled job of their digest"
        )
    return DigestUser(*row)


def find_users(db: Database, names: Collection[str]) -> dict[str, DigestUser]:
    """Return those users there are of these ids, which may be any text."""
    rows = db.execute(_NAMED, {"names": list(names)})
    return {str(row.id): DigestUser(*row) for row in rows}


def follow(db: Database, user_id: UUID, account_id: UUID) -> None:
    """Let a user follow an account from now on; twice is once.

    Raises:
        DigestError: There is no such user, or no such account of their tenant.
    """
    user = find_user(db, user_id)
    known = db.execute(
        text("SELECT 1 FROM cronless_assets.account WHERE id = :id AND tenant_id = :tenant_id"),
        {"id": account_id, "tenant_id": user.tenant_id},
    ).first()
    if known is None:
        raise DigestError(
            f"tenant {user.tenant_id!r} has no account {account_id}: a user follows accounts of their own tenant"
        )
    db.execute(
        text(
            "INSERT INTO cronless_assets.follow (user_id, account_id) VALUES (:user_id, :account_id)"
            " ON CONFLICT DO NOTHING"
        ),
        {"user_id": user_id, "account_id": account_id},
    )


def unfollow(db: Database, user_id: UUID, account_id: UUID) -> None:
    """Let a user no longer follow an account; harmless where they don't."""
    db.execute(
        text("DELETE FROM cronless_assets.follow WHERE user_id = :user_id AND account_id = :account_id"),
        {"user_id": user_id, "account_id": account_id},
    )


def schedule_digest(
    db: Database,
    user_id: UUID,
    *,
    at: str = "08:00",
    days: str = "daily",
    job_type: str = JOB_TYPE,
    **options: Any,
) -> UUID:
    """Give a user's digest its hour, in the user's own zone; returns the id of the scheduled job.

    There is one for each user: the same call again changes its hour or, after `add_user`, its zone.

    Args:
        db: The caller's session or connection.
        user_id: Whose.
        at: The local time, as `08:00`.
        days: One of `DAYS`.
        job_type: Of the digests, where it isn't called `email_digest`.
        options: Of the scheduled job, such as `jitter_seconds=600` to spread a full hour.

    Raises:
        DigestError: There is no such user, or the time or the days can't be read.
        TimezoneError: The user's zone is unknown.
        JobError: An option can't be used.
    """
    user = find_user(db, user_id)
    found = _HOUR.fullmatch(at)
    if found is None:
        raise DigestError(f"the time {at!r} can't be read: give one from 00:00 to 23:59, as '08:00'")
    if days not in DAYS:
        raise DigestError(f"the days {days!r} are unknown: use {', '.join(DAYS)}")
    return jobs.upsert(
        db,
        tenant_id=user.tenant_id,
        job_type=job_type,
        name=str(user.id),
        schedule=f"{int(found[2])} {int(found[1])} * * {DAYS[days]}",
        timezone=user.timezone,
        payload={"user": str(user.id)},
        **options,
    )


def unsubscribe(db: Database, user_id: UUID) -> bool:
    """Send a user no further digests; twice is once. Returns whether there is such a user.

    The scheduled job stays, and its occurrences pass without a mail.
    """
    return (
        db.execute(
            text(
                "UPDATE cronless_assets.digest_user"
                " SET unsubscribed_at = coalesce(unsubscribed_at, cronless.clock_now()) WHERE id = :id RETURNING id"
            ),
            {"id": user_id},
        ).first()
        is not None
    )


def resubscribe(db: Database, user_id: UUID) -> bool:
    """Send a user digests again, since they asked for it. Returns whether there is such a user."""
    return (
        db.execute(
            text("UPDATE cronless_assets.digest_user SET unsubscribed_at = NULL WHERE id = :id RETURNING id"),
            {"id": user_id},
        ).first()
        is not None
    )
