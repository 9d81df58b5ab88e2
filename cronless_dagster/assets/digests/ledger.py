"""The ledger of digests: one row for a user and an occurrence, written before the mail and completed after it.

    nothing_new                     no mail was due
    sending -> sent                 accepted by the mail server
    sending -> refused -> sending   known not to be accepted, and tried again
    sending, left behind            may have been mailed: uncertain until somebody settles it

`sending` is committed before the mail server is spoken to. So whatever dies in between, no second try can mail again
what may have been mailed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, Row, text

from cronless_dagster.assets.digests.errors import DigestError, Uncertain
from cronless_dagster.assets.digests.news import new_items
from cronless_dagster.store.clock import current_time

if TYPE_CHECKING:
    from datetime import date, datetime, timedelta
    from uuid import UUID

    from cronless_dagster.assets.digests.users import DigestUser

Status = Literal["nothing_new", "sending", "sent", "refused"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What `begin` found or wrote.

    Attributes:
        status: "sending": mail it now. "sent", "nothing_new": there is nothing to do.
        items: What is new, the newest first.
        at: When this try began, aware UTC.
        already: An earlier try has ended this occurrence.
    """

    status: Status
    items: tuple[int, ...]
    at: datetime
    already: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row of `cronless_assets.digest_delivery`."""

    user_id: UUID
    occurrence: datetime
    tenant_id: str
    local_date: date
    status: Status
    items: tuple[int, ...]
    message_id: str | None
    started_at: datetime
    execution: str | None
    error: str | None


_FOUND = text(
    """
    SELECT status, items, started_at, execution FROM cronless_assets.digest_delivery
    WHERE user_id = :user_id AND occurrence = :occurrence
    """
)
_BEGUN = text(
    """
    INSERT INTO cronless_assets.digest_delivery AS delivery
        (user_id, occurrence, tenant_id, local_date, status, covers_until, items, message_id, execution, started_at,
         ended_at)
    VALUES (:user_id, :occurrence, :tenant_id, :local_date, :status, :at, :items, :message_id, :execution, :at,
            CASE WHEN :status = 'nothing_new' THEN CAST(:at AS timestamptz) END)
    ON CONFLICT (user_id, occurrence) DO UPDATE
    SET status = excluded.status, covers_until = excluded.covers_until, items = excluded.items,
        message_id = excluded.message_id, execution = excluded.execution, started_at = excluded.started_at,
        ended_at = excluded.ended_at, error = NULL
    WHERE delivery.status = 'refused'
    RETURNING delivery.user_id
    """
)
_TAKEN_OVER = text(
    "UPDATE cronless_assets.digest_delivery SET items = '{}'"
    " WHERE user_id = :user_id AND occurrence <> :occurrence AND status = 'refused' AND items <> '{}'"
)
_END = text(
    """
    UPDATE cronless_assets.digest_delivery
    SET status = :status, error = :error, ended_at = cronless.clock_now()
    WHERE user_id = :user_id AND occurrence = :occurrence AND status = 'sending' AND execution = :execution
    """
)
_NOTE = text(
    """
    UPDATE cronless_assets.digest_delivery SET error = :error
    WHERE user_id = :user_id AND occurrence = :occurrence AND status = 'sending' AND execution = :execution
    """
)
_SETTLED = text(
    """
    UPDATE cronless_assets.digest_delivery
    SET status = :status, error = NULL, ended_at = cronless.clock_now()
    WHERE user_id = :user_id AND occurrence = :occurrence AND status = 'sending'
    RETURNING user_id
    """
)
_UNCERTAIN = text(
    """
    SELECT user_id, occurrence, tenant_id, local_date, status, items, message_id, started_at, execution, error
    FROM cronless_assets.digest_delivery
    WHERE status = 'sending' AND started_at < :before ORDER BY started_at, user_id LIMIT :limit
    """
)
_OF_DATES = text(
    """
    SELECT user_id, occurrence, tenant_id, local_date, status, items, message_id, started_at, execution, error
    FROM cronless_assets.digest_delivery
    WHERE local_date = ANY(:dates) ORDER BY local_date, tenant_id, user_id, occurrence
    """
)


def begin(
    connection: Connection,
    user: DigestUser,
    occurrence: datetime,
    *,
    local_date: date,
    message_id: str,
    execution: str,
    overlap: timedelta,
) -> Entry:
    """Write that a digest is about to be mailed, or that nothing is new; the caller commits, then mails.

    Args:
        connection: A transaction that has locked the user, so that one digest of theirs is begun at a time.
        user: Whose.
        occurrence: The nominal instant that is served.
        local_date: Its date in the user's zone.
        message_id: What the mail will be known by.
        execution: This try; the same one may call again after it lost the answer to a COMMIT.
        overlap: As of `new_items`.

    Raises:
        Uncertain: An earlier try has left this occurrence in `sending`.
    """
    key = {"user_id": user.id, "occurrence": occurrence}
    found = connection.execute(_FOUND, key).one_or_none()
    if found is not None and found.status == "sending" and found.execution != execution:
        raise Uncertain(_how_to_settle(user.id, occurrence, found.started_at))
    if found is not None and found.status != "refused":
        return Entry(found.status, tuple(found.items), found.started_at, already=found.status != "sending")
    at = current_time(connection)
    items = new_items(connection, user, occurrence, until=at, overlap=overlap)
    status: Status = "sending" if items else "nothing_new"
    written = connection.execute(
        _BEGUN,
        {
            **key,
            "tenant_id": user.tenant_id,
            "local_date": local_date,
            "status": status,
            "items": items,
            "message_id": message_id if items else None,
            "execution": execution,
            "at": at,
        },
    ).first()
    if written is None:
        raise Uncertain(_how_to_settle(user.id, occurrence, at))
    # What a refused digest owed is in this one now, and owed by nobody else.
    connection.execute(_TAKEN_OVER, key)
    return Entry(status, tuple(items), at)


def end(
    connection: Connection,
    user_id: UUID,
    occurrence: datetime,
    *,
    execution: str,
    status: Literal["sent", "refused"],
    error: str | None = None,
) -> None:
    """Write how the mailing ended; what this execution doesn't have in `sending` stays as it is."""
    connection.execute(
        _END,
        {
            "user_id": user_id,
            "occurrence": occurrence,
            "execution": execution,
            "status": status,
            "error": error,
        },
    )


def note(connection: Connection, user_id: UUID, occurrence: datetime, *, execution: str, error: str) -> None:
    """Write why it isn't known how the mailing ended."""
    connection.execute(
        _NOTE, {"user_id": user_id, "occurrence": occurrence, "execution": execution, "error": error}
    )


def uncertain(connection: Connection, *, before: datetime, limit: int = 1_000) -> list[Delivery]:
    """Return digests that may or may not have been mailed, the oldest first.

    Args:
        connection: Of the store's database.
        before: Only those begun before this instant: a younger one may still be on its way.
        limit: At most so many.
    """
    return [_delivery(row) for row in connection.execute(_UNCERTAIN, {"before": before, "limit": limit})]


def of_dates(connection: Connection, dates: list[date]) -> list[Delivery]:
    """Return the digests that are counted on these local dates, by date, tenant and user."""
    return [_delivery(row) for row in connection.execute(_OF_DATES, {"dates": dates})]


def settle(connection: Connection, user_id: UUID, occurrence: datetime, *, was_sent: bool) -> None:
    """Say of an uncertain digest whether it was mailed, as the mail server's log tells.

    One that was not is `refused`: its items are in the user's next digest, or in the next try of this one.

    Raises:
        DigestError: There is no such digest, or it isn't uncertain.
    """
    key = {"user_id": user_id, "occurrence": occurrence}
    changed = connection.execute(_SETTLED, {**key, "status": "sent" if was_sent else "refused"}).first()
    if changed is not None:
        return
    found = connection.execute(_FOUND, key).one_or_none()
    state = "isn't known" if found is None else f"is {found.status}"
    raise DigestError(
        f"the digest of user {user_id} for {occurrence.isoformat()} {state}: settle only what"
        " `cronless digests uncertain` lists"
    )


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        user_id=row.user_id,
        occurrence=row.occurrence,
        tenant_id=row.tenant_id,
        local_date=row.local_date,
        status=row.status,
        items=tuple(row.items),
        message_id=row.message_id,
        started_at=row.started_at,
        execution=row.execution,
        error=row.error,
    )


def _how_to_settle(user_id: UUID, occurrence: datetime, started_at: datetime) -> str:
    return (
        f"this digest was being sent at {_iso(started_at)} and may have been mailed, so it isn't sent again: look into"
        f" the mail server's log, then call `cronless digests settle {user_id} {_iso(occurrence)}` with --was-sent or"
        " --not-sent"
    )


def _iso(instant: datetime) -> str:
    # Whole, since the command line finds the row by it.
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
