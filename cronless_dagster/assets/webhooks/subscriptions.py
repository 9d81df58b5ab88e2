"""Subscribing to a topic and leaving it, in the caller's own transaction; the scheduled job does the rest."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from sqlalchemy import Connection, text

from cronless_dagster.assets.webhooks import records
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.store import jobs
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.job_values import checked

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    Database: TypeAlias = "Session | Connection"

JOB_TYPE = "webhook_renewal"
SCHEDULE = "@handler fallback=24h"
# Tenant, topic and hub together are an index entry, and PostgreSQL limits those in bytes.
_LONGEST_ADDRESS = 1_000
_LONGEST_NAME = 400


class SubscriptionError(CronlessError):
    """A subscription that can't be made or found."""


def subscribe(
    db: Database,
    *,
    tenant_id: str,
    topic: str,
    hub: str,
    job_type: str = JOB_TYPE,
    schedule: str = SCHEDULE,
) -> UUID:
    """Subscribe a tenant to a topic and return the subscription's id; the next tick asks the hub.

    The same call twice changes nothing. A subscription that was left, or that the hub denied, is asked for anew.

    Args:
        db: The caller's session or connection; nothing here commits.
        tenant_id: Whose subscription it is, and whose scheduled job.
        topic: The topic's own address, its `rel="self"` (WebSub 4).
        hub: The hub's address. Use https, since the secret that signs the content travels to it.
        job_type: The job type that `webhook_renewal` declared.
        schedule: `@handler` with another fallback: how soon a hub is asked again that refused all tries.

    Raises:
        SubscriptionError: An address that can't be used.
        JobError: A tenant that can't be used.
    """
    check_address("topic", topic)
    check_address("hub", hub)
    checked({"tenant_id": tenant_id, "job_type": job_type, "schedule": schedule}, 0)
    made = db.execute(
        text(
            "INSERT INTO cronless_assets.subscription (id, tenant_id, topic, hub, secret)"
            " VALUES (:id, :tenant_id, :topic, :hub, :secret) ON CONFLICT DO NOTHING RETURNING id"
        ),
        {
            "id": uuid4(),
            "tenant_id": tenant_id,
            "topic": topic,
            "hub": hub,
            "secret": secrets.token_urlsafe(32),
        },
    ).scalar()
    found = db.execute(
        text(
            "SELECT id, status FROM cronless_assets.subscription"
            " WHERE tenant_id = :tenant_id AND topic = :topic AND hub = :hub FOR UPDATE"
        ),
        {"tenant_id": tenant_id, "topic": topic, "hub": hub},
    ).one()
    job_id = jobs.upsert(
        db,
        tenant_id=tenant_id,
        job_type=job_type,
        # For people; two topics, or a topic at two hubs, are told apart by the id's beginning.
        name=f"{topic[:_LONGEST_NAME]} ({str(found.id)[:8]})",
        schedule=schedule,
        payload={"subscription": str(found.id)},
    )
    anew = made is not None or found.status in ("denied", "leaving", "ended")
    db.execute(
        text(
            "UPDATE cronless_assets.subscription SET job_id = :job_id, status = CASE WHEN :anew THEN 'new' ELSE status"
            " END, unanswered = CASE WHEN :anew THEN 0 ELSE unanswered END WHERE id = :id"
        ),
        {"job_id": job_id, "anew": anew, "id": found.id},
    )
    if anew:
        # Left to the planner it would be due one tick later.
        _run_now(db, job_id)
    return found.id  # type: ignore[no-any-return]


def unsubscribe(db: Database, subscription_id: UUID) -> None:
    """Leave a topic: what comes from now on is refused, and the next tick tells the hub.

    The subscription ends, and its job with it, once the hub has verified that, or once its lease has run out.
    Without a lease it ends at once.

    Raises:
        SubscriptionError: There is no such subscription.
    """
    connection = db if isinstance(db, Connection) else db.connection()
    subscription = records.find(connection, subscription_id, lock=True)
    if subscription is None:
        raise SubscriptionError(
            f"there is no subscription {subscription_id}: look into cronless_assets.subscription"
        )
    if not subscription.is_leased(current_time(connection)):
        records.ended(connection, subscription)
    elif subscription.status != "leaving":
        connection.execute(
            text("UPDATE cronless_assets.subscription SET status = 'leaving', unanswered = 0 WHERE id = :id"),
            {"id": subscription_id},
        )
        _run_now(connection, subscription.job_id)


def check_address(name: str, address: str) -> None:
    """Refuse what is no web address, before it is stored or sent to anybody.

    Raises:
        SubscriptionError: It isn't http or https, has no host, holds a login, or other characters than RFC 3986 has.
    """
    shown = address[:80]
    if not address.isascii() or not address.isprintable() or " " in address:
        raise SubscriptionError(
            f"the {name} {shown!r} holds a character that no web address has: percent-encode it (RFC 3986, 2.1)"
        )
    if len(address) > _LONGEST_ADDRESS:
        raise SubscriptionError(
            f"the {name} {shown!r}… has {len(address):,} characters: give an address of at most"
            f" {_LONGEST_ADDRESS:,}"
        )
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise SubscriptionError(
            f"the {name} {shown!r} is no web address: give one such as https://example.org/feed"
        )
    if "@" in parts.netloc:
        raise SubscriptionError(f"the {name} at {parts.hostname} holds a login: give the address without it")


def _run_now(db: Database, job_id: UUID | None) -> None:
    """Make the job due, also where it is paused or is being run right now."""
    db.execute(
        text(
            "UPDATE cronless.scheduled_job SET next_run_at = cronless.clock_now(), paused_at = NULL WHERE id = :id"
        ),
        {"id": job_id},
    )
