"""Renewing one subscription: ask the hub, and look back later whether it has kept its word.

A hub takes a request at once and grants the lease later, in its GET to the callback, which moves the job to the
lease's renewal. So what is returned here is only when to look back; where the GET comes first, its instant wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cronless_dagster.assets.webhooks import records
from cronless_dagster.assets.webhooks.hub import HubError, Request, ask
from cronless_dagster.engine.errors import PermanentFailure
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Engine

    from cronless_dagster.assets.fetching import Fetcher
    from cronless_dagster.store.rows import ClaimedJob

CALLBACK_PATH = "/websub"
LEASE = timedelta(days=10)
CHECK_BACK = timedelta(minutes=10)
PATIENCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How hubs are asked.

    Attributes:
        lease: The lease that is wished for; WebSub 8.2 calls ten days a good one.
        check_back: After so long without the hub's GET it is asked again.
        patience: After so many requests that a hub took and never verified, each further one counts as failed.
    """

    lease: timedelta = LEASE
    check_back: timedelta = CHECK_BACK
    patience: int = PATIENCE


def renew(
    job: ClaimedJob, engine: Engine, fetcher: Fetcher, public_url: str, terms: Terms
) -> datetime | None:
    """Ask for one subscription's next lease, or to end it where it is to be left.

    Args:
        job: Its payload is `{"subscription": "<id>"}`.
        engine: The store's.
        fetcher: Sends the request, and refuses hubs at private addresses.
        public_url: Where hubs reach `cronless callbacks`.
        terms: How to ask.

    Returns:
        When to look back, aware UTC; None where the hub's verdict came first.

    Raises:
        PermanentFailure: There is no such subscription, or the hub refuses it.
        RetryLater, HubError, FetchError: As `hub.ask`; HubError also where the hub takes requests and verifies none.
    """
    subscription_id = subscription_of(job.payload)
    with transaction(engine) as connection:
        now = current_time(connection)
        subscription = records.find(connection, subscription_id, lock=True)
        if subscription is None:
            raise PermanentFailure(f"there is no subscription {_shown(subscription_id)}: remove this job")
        if subscription.is_over(now):
            records.ended(connection, subscription)
            return None
        # Committed before the request: a quick hub's GET comes before its answer.
        records.requested(connection, subscription, job.id, now)
    leaving = subscription.status == "leaving"
    request = Request(
        "unsubscribe" if leaving else "subscribe",
        subscription.topic,
        f"{public_url.rstrip('/')}{CALLBACK_PATH}/{subscription.id}",
        terms.lease,
        subscription.secret,
    )
    try:
        ask(fetcher, subscription, request, now)
    except Exception as error:
        if _waiting(engine, subscription_id, now, error=str(error)) is None:
            # The answer got lost, and not the request.
            return None
        raise
    waiting = _waiting(engine, subscription_id, now)
    if waiting is None:
        return None
    if leaving:
        return _look_back_on_leaving(waiting, now, terms)
    if waiting.unanswered > terms.patience:
        raise HubError(
            f"the hub took {waiting.unanswered} requests and verified none: check that it can reach"
            f" {public_url}{CALLBACK_PATH}/…, where `cronless callbacks` must be running"
        )
    return now + terms.check_back


def subscription_of(payload: Mapping[str, Any]) -> UUID:
    """Return the subscription that a job's payload names.

    Raises:
        PermanentFailure: It names none.
    """
    try:
        return UUID(payload["subscription"])
    except (KeyError, ValueError, TypeError, AttributeError):
        raise PermanentFailure(
            'the payload names no subscription: make it {"subscription": "<id>"}, or let `subscribe` make the job'
        ) from None


def _waiting(
    engine: Engine, subscription_id: UUID, requested_at: datetime, *, error: str | None = None
) -> records.Subscription | None:
    """Note how the request went; None where the hub has verified or ended the subscription meanwhile.

    Raises:
        PermanentFailure: The hub has denied it meanwhile.
    """
    with transaction(engine) as connection:
        waiting = records.still_waiting(connection, subscription_id, requested_at, error)
        if waiting is None:
            found = records.find(connection, subscription_id)
            if found is not None and found.status == "denied":
                raise PermanentFailure(f"the hub denied the subscription: {found.error}")
    return waiting


def _look_back_on_leaving(subscription: records.Subscription, now: datetime, terms: Terms) -> datetime | None:
    """Return when to ask again to be let go; a hub that never verifies it is left alone until the lease is over."""
    if subscription.unanswered >= terms.patience:
        return subscription.expires_at
    return now + terms.check_back


def _shown(subscription_id: UUID) -> str:
    # The whole id is the callback's address.
    return f"{str(subscription_id)[:8]}…"
