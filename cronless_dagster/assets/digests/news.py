"""What is new for a user: items of the accounts they follow that no digest of theirs has covered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from cronless_dagster.assets.digests.users import DigestUser


@dataclass(frozen=True, slots=True)
class Item:
    """An item as a digest shows it. `at` is when it was published or, where nobody says, first seen (UTC)."""

    id: int
    account: str
    title: str
    url: str | None
    summary: str
    at: datetime


# One that was refused was read by nobody, so it covers nothing.
_SINCE = text(
    """
    SELECT max(covers_until) FROM cronless_assets.digest_delivery
    WHERE user_id = :user_id AND occurrence < :occurrence AND status IN ('sent', 'nothing_new', 'sending')
    """
)

# A refresh commits later than its items say they were seen. So the search begins a while before the last digest's
# end, and leaves out what the digests of that while list. What a refused digest lists is owed, however old it is.
_NEW = text(
    """
    WITH followed AS (
        SELECT account.id, follow.since
        FROM cronless_assets.follow
        JOIN cronless_assets.account ON account.id = follow.account_id AND account.tenant_id = :tenant_id
        WHERE follow.user_id = :user_id
    ), told AS (
        SELECT unnest(items) AS id FROM cronless_assets.digest_delivery
        WHERE user_id = :user_id AND occurrence <> :occurrence AND status IN ('sent', 'nothing_new', 'sending')
          AND covers_until >= coalesce(CAST(:since AS timestamptz), '-infinity')
    ), owed AS (
        SELECT unnest(items) AS id FROM cronless_assets.digest_delivery
        WHERE user_id = :user_id AND status = 'refused'
    ), found AS (
        SELECT item.id, coalesce(item.published_at, item.first_seen_at) AS at
        FROM cronless_assets.item JOIN followed ON followed.id = item.account_id
        WHERE item.first_seen_at > greatest(followed.since, CAST(:since AS timestamptz))
          AND item.first_seen_at <= :until
        UNION
        SELECT item.id, coalesce(item.published_at, item.first_seen_at) AS at
        FROM owed JOIN cronless_assets.item USING (id) JOIN followed ON followed.id = item.account_id
    )
    SELECT id FROM found WHERE id NOT IN (SELECT id FROM told) ORDER BY at DESC, id DESC
    """
)

_ITEMS = text(
    """
    SELECT item.id, account.name AS account, item.title, item.url, item.summary,
           coalesce(item.published_at, item.first_seen_at) AS at
    FROM unnest(CAST(:ids AS bigint[])) WITH ORDINALITY AS wanted (id, place)
    JOIN cronless_assets.item USING (id)
    JOIN cronless_assets.account ON account.id = item.account_id
    ORDER BY wanted.place
    """
)

_BY_ACCOUNT = text(
    """
    SELECT account.name, count(*) AS number
    FROM cronless_assets.item JOIN cronless_assets.account ON account.id = item.account_id
    WHERE item.id = ANY(CAST(:ids AS bigint[])) GROUP BY account.name
    """
)


def new_items(
    connection: Connection, user: DigestUser, occurrence: datetime, *, until: datetime, overlap: timedelta
) -> list[int]:
    """Return the ids of what is new for a user at an occurrence, the newest first.

    Args:
        connection: Of the store's database.
        user: Only accounts of their own tenant count, and items seen after they began to follow.
        occurrence: Only digests of earlier occurrences end what was covered before.
        until: Items first seen later are left to the next digest.
        overlap: How much later than an item's `first_seen_at` its refresh may have committed.
    """
    at = {"user_id": user.id, "occurrence": occurrence}
    covered = connection.execute(_SINCE, at).scalar()
    since = None if covered is None else covered - overlap
    found = connection.execute(_NEW, {**at, "tenant_id": user.tenant_id, "since": since, "until": until})
    return list(found.scalars())


def load_items(connection: Connection, ids: Sequence[int]) -> list[Item]:
    """Return the items of these ids in their order; what has been removed since is left out."""
    return [Item(*row) for row in connection.execute(_ITEMS, {"ids": list(ids)})]


def count_by_account(connection: Connection, ids: Sequence[int]) -> dict[str, int]:
    """Return how many of these items each account has, by its name."""
    return {row.name: row.number for row in connection.execute(_BY_ACCOUNT, {"ids": list(ids)})}
