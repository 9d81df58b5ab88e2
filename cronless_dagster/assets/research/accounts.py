"""Accounts and their sources: what a tenant wants watched. Nothing here commits; give a session or a connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from sqlalchemy import text

from cronless_dagster.assets.partitions import tenant_partition
from cronless_dagster.assets.research.files import check_location
from cronless_dagster.assets.research.found import MAX_URL, SourceError, web_address
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.store import jobs
from cronless_dagster.store.clock import current_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    Database: TypeAlias = "Session | Connection"

JOB_TYPE = "account_research"
KINDS = ("feed", "page", "csv", "parquet")
MAX_NAME = 200
_Kind: TypeAlias = Literal["feed", "page", "csv", "parquet"]


class AccountError(CronlessError):
    """An account that isn't there, has no source, or can't be watched as asked."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is watched.

    Attributes:
        kind: "feed" (RSS or Atom), "page" (HTML), "csv" or "parquet".
        location: A web address; for files a path below the directory that CRONLESS_FILES_HOME names.
    """

    kind: _Kind
    location: str

    def __post_init__(self) -> None:
        """Refuse what could never be read.

        Raises:
            AccountError: An unknown kind, no web address, or a path that leads elsewhere.
        """
        if self.kind not in KINDS:
            raise AccountError(f"source kind {str(self.kind)[:40]!r} is not known: use {', '.join(KINDS)}")
        if self.kind in ("csv", "parquet"):
            try:
                check_location(self.location)
            except SourceError as error:
                raise AccountError(str(error)) from None
        elif not _fetchable(self.location):
            raise AccountError(
                f"source {self.location[:200]!r} is no web address that can be watched: give http:// or https:// with a"
                f" host, without a login, of at most {MAX_URL:,} printable characters"
            )


@dataclass(frozen=True, slots=True)
class KnownSource:
    """A source as the database knows it, with what its next conditional request says."""

    id: UUID
    kind: _Kind
    location: str
    etag: str | None
    last_modified: str | None
    content_hash: str | None
    fetched_at: datetime | None


@dataclass(frozen=True, slots=True)
class Account:
    """An account with its sources, as read at an instant (aware UTC)."""

    id: UUID
    tenant_id: str
    name: str
    sources: Sequence[KnownSource]
    read_at: datetime


def watch(db: Database, *, tenant_id: str, name: str, sources: Iterable[Source]) -> UUID:
    """Watch these sources for an account, beside those it has; returns the account's id. Twice is once.

    Raises:
        TenantError: The tenant can't be a partition.
        AccountError: The name can't be used. (A source that can't is refused when it is made.)
    """
    tenant_partition(tenant_id)
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
        raise AccountError(
            f"account name {name[:80]!r} can't be used: give 1 to {MAX_NAME} printable characters"
        )
    account_id: UUID = db.execute(
        text(
            # An update that changes nothing, so that RETURNING answers also where the account is there.
            "INSERT INTO cronless_assets.account AS account (tenant_id, name) VALUES (:tenant_id, :name)"
            " ON CONFLICT (tenant_id, name) DO UPDATE SET name = account.name RETURNING id"
        ),
        {"tenant_id": tenant_id, "name": name},
    ).scalar_one()
    # In one order, so that two that declare the same at once don't wait for each other.
    rows = [
        {"account_id": account_id, "kind": kind, "location": location}
        for location, kind in sorted({one.location: one.kind for one in sources}.items())
    ]
    if rows:
        db.execute(
            text(
                # Read as another kind, nothing of what was remembered holds.
                "INSERT INTO cronless_assets.source AS source (account_id, kind, location)"
                " VALUES (:account_id, :kind, :location) ON CONFLICT (account_id, location) DO UPDATE"
                " SET kind = excluded.kind, etag = NULL, last_modified = NULL, content_hash = NULL, fetched_at = NULL,"
                " status = NULL, error = NULL WHERE source.kind <> excluded.kind"
            ),
            rows,
        )
    return account_id


def unwatch(db: Database, *, tenant_id: str, name: str, location: str | None = None) -> None:
    """Forget a source with its items, or the whole account where none is named.

    Raises:
        AccountError: There is no such account, or no such source of it.
    """
    if location is None:
        statement = (
            "DELETE FROM cronless_assets.account WHERE tenant_id = :tenant_id AND name = :name RETURNING id"
        )
    else:
        statement = (
            "DELETE FROM cronless_assets.source WHERE location = :location AND account_id ="
            " (SELECT id FROM cronless_assets.account WHERE tenant_id = :tenant_id AND name = :name) RETURNING id"
        )
    values = {"tenant_id": tenant_id, "name": name} | ({} if location is None else {"location": location})
    if db.execute(text(statement), values).first() is None:
        what = "" if location is None else f" with the source {location[:200]!r}"
        raise AccountError(
            f"tenant {tenant_id[:80]!r} has no account {name[:80]!r}{what}: nothing was removed"
        )


def schedule_account(
    db: Database,
    *,
    tenant_id: str,
    name: str,
    sources: Iterable[Source] = (),
    schedule: str = "@window 6h",
    timezone: str = "UTC",
    job_type: str = JOB_TYPE,
    **options: Any,
) -> UUID:
    """Watch an account and refresh it by a schedule; returns the id of the scheduled job. Twice is once.

    The default is once in each six hours, at a minute of the account's own, so that a thousand accounts are no wave.

    Raises:
        AccountError, TenantError: As `watch`.
        ScheduleError, TimezoneError, JobError: As `cronless_dagster.jobs.upsert`, which takes the options.
    """
    watch(db, tenant_id=tenant_id, name=name, sources=sources)
    return jobs.upsert(
        db,
        tenant_id=tenant_id,
        job_type=job_type,
        name=name,
        schedule=schedule,
        timezone=timezone,
        payload={"account": name},
        **options,
    )


def load_account(connection: Connection, tenant_id: str, name: str) -> Account:
    """Return an account with its sources, by their addresses.

    Raises:
        AccountError: There is none of this name, or it has no source.
    """
    rows = connection.execute(
        text(
            "SELECT account.id AS account_id, source.id, source.kind, source.location, source.etag,"
            " source.last_modified, source.content_hash, source.fetched_at FROM cronless_assets.account AS account"
            " LEFT JOIN cronless_assets.source AS source ON source.account_id = account.id"
            " WHERE account.tenant_id = :tenant_id AND account.name = :name ORDER BY source.location"
        ),
        {"tenant_id": tenant_id, "name": name},
    ).all()
    if not rows:
        raise AccountError(
            f"tenant {tenant_id[:80]!r} has no account {name[:80]!r}: add it by `watch`, or remove the scheduled job"
        )
    if rows[0].id is None:
        raise AccountError(
            f"account {name[:80]!r} of tenant {tenant_id[:80]!r} has no source: add one by `watch`"
        )
    sources = [
        KnownSource(
            row.id, row.kind, row.location, row.etag, row.last_modified, row.content_hash, row.fetched_at
        )
        for row in rows
    ]
    return Account(rows[0].account_id, tenant_id, name, sources, current_time(connection))


def accounts_of(connection: Connection, tenants: Sequence[str]) -> list[tuple[str, str]]:
    """Return tenant and name of all accounts of some tenants, in order."""
    rows = connection.execute(
        text(
            "SELECT tenant_id, name FROM cronless_assets.account WHERE tenant_id = ANY(:tenants) ORDER BY 1, 2"
        ),
        {"tenants": list(tenants)},
    )
    return [(row.tenant_id, row.name) for row in rows]


def items_by_tenant(connection: Connection, tenants: Sequence[str]) -> dict[str, int]:
    """Return how many items the accounts of each of some tenants have, as of their last refreshes."""
    rows = connection.execute(
        text(
            "SELECT account.tenant_id, sum(summary.items) AS items FROM cronless_assets.account AS account"
            " JOIN cronless_assets.account_summary AS summary ON summary.account_id = account.id"
            " WHERE account.tenant_id = ANY(:tenants) GROUP BY account.tenant_id"
        ),
        {"tenants": list(tenants)},
    )
    return {row.tenant_id: int(row.items) for row in rows}


def tenants_with_accounts(connection: Connection) -> list[str]:
    """Return the tenants that have accounts, in order."""
    return list(connection.scalars(text("SELECT DISTINCT tenant_id FROM cronless_assets.account ORDER BY 1")))


def _fetchable(location: str) -> bool:
    if web_address(location) != location or not location.isprintable() or " " in location:
        return False
    try:
        parts = urlsplit(location)
        return bool(parts.hostname) and parts.username is None and parts.password is None and parts.port != 0
    except ValueError:
        return False
