"""What a refresh writes: items, the state of their sources and the account's summary, in one transaction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from cronless_dagster.assets.research.accounts import AccountError
from cronless_dagster.assets.research.reading import Read, Unread
from cronless_dagster.assets.research.summaries import WEEKS, by_week, first_monday
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from cronless_dagster.assets.research.accounts import Account

_PACKAGE = "cronless_dagster.assets.research"
# Whoever refreshes an account holds its row, and only then its sources and items: two at once go one after the other.
_HOLD_ACCOUNT = text("SELECT id FROM cronless_assets.account WHERE id = :id FOR NO KEY UPDATE")
_HOLD_SOURCES = text(
    "SELECT id, kind, fetched_at FROM cronless_assets.source WHERE account_id = :id ORDER BY id FOR NO KEY UPDATE"
)
_READ = text(
    "UPDATE cronless_assets.source SET etag = :etag, last_modified = :last_modified, content_hash = :content_hash,"
    " fetched_at = :now, status = :status, error = NULL WHERE id = :id"
)
_UNREAD = text("UPDATE cronless_assets.source SET status = 'failed', error = :error WHERE id = :id")
_FAILED = text(
    "UPDATE cronless_assets.account_summary SET failed_sources = (SELECT count(*) FROM cronless_assets.source"
    " WHERE account_id = :id AND status = 'failed') WHERE account_id = :id"
)
_RECENT = text(
    "SELECT COALESCE(published_at, first_seen_at) FROM cronless_assets.item"
    " WHERE account_id = :id AND COALESCE(published_at, first_seen_at) >= :since"
)


def store(
    connection: Connection, account: Account, answers: Sequence[Read | Unread], weeks: int = WEEKS
) -> tuple[int, int, int]:
    """Write what was read; returns the numbers of new items, of changed ones, and of all that the account has.

    The instant is the transaction's own, not that of the fetch: whoever asks for what is new since an instant must
    not find items older than it later on.

    A source that somebody else has read in the meantime keeps what they wrote, for ours may be the older one; so does
    one that is to be read as another kind by now.

    Raises:
        AccountError: The account was removed in the meantime.
    """
    if connection.execute(_HOLD_ACCOUNT, {"id": account.id}).first() is None:
        raise AccountError(
            f"account {account.name!r} of tenant {account.tenant_id!r} was removed during its refresh"
        )
    known = {tuple(row) for row in connection.execute(_HOLD_SOURCES, {"id": account.id})}
    ours = [one for one in answers if (one.source.id, one.source.kind, one.source.fetched_at) in known]
    now = current_time(connection)
    read = [one for one in ours if isinstance(one, Read)]
    unread = [one for one in ours if isinstance(one, Unread)]
    written = _write_items(connection, account.id, read, now)
    _write_sources(connection, read, unread, now)
    new, changed = sum(written), len(written) - sum(written)
    if not any(isinstance(one, Read) for one in answers):
        # Not refreshed: what was true of the last refresh stays.
        connection.execute(_FAILED, {"id": account.id})
        return 0, 0, 0
    recent = connection.scalars(_RECENT, {"id": account.id, "since": first_monday(now, weeks)}).all()
    items: int = connection.execute(
        statement("write_summary", _PACKAGE),
        {
            "account_id": account.id,
            "now": now,
            "new_items": new,
            "changed_items": changed,
            "weekly": json.dumps(by_week(recent)),
        },
    ).scalar_one()
    return new, changed, items


def _write_items(connection: Connection, account_id: UUID, read: Sequence[Read], now: datetime) -> list[bool]:
    """Return for each item that was written whether it is new."""
    rows = [(one, item) for one in read for item in one.items or ()]
    if not rows:
        return []
    values: dict[str, Any] = {
        "source_ids": [one.source.id for one, _ in rows],
        "keys": [item.key for _, item in rows],
        "hashes": [item.content_hash for _, item in rows],
        "titles": [item.title for _, item in rows],
        "urls": [item.url for _, item in rows],
        "summaries": [item.summary for _, item in rows],
        "authors": [item.author for _, item in rows],
        "published": [item.published_at for _, item in rows],
        "fetched_from": [one.fetched_from for one, _ in rows],
    }
    return list(
        connection.scalars(
            statement("write_items", _PACKAGE), {"account_id": account_id, "now": now, **values}
        )
    )


def _write_sources(
    connection: Connection, read: Sequence[Read], unread: Sequence[Unread], now: datetime
) -> None:
    if read:
        connection.execute(
            _READ,
            [
                {
                    "id": one.source.id,
                    "etag": one.etag,
                    "last_modified": one.last_modified,
                    "content_hash": one.content_hash,
                    "now": now,
                    "status": "unchanged" if one.items is None else "new",
                }
                for one in read
            ],
        )
    if unread:
        connection.execute(_UNREAD, [{"id": one.source.id, "error": _storable(one.error)} for one in unread])


def _storable(error: str) -> str:
    return error.replace("\x00", "").encode(errors="replace").decode()
