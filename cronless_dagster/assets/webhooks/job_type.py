"""The job type of webhook renewals, for either route. Imports no Dagster: workers of the queue route need none."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from cronless_dagster.assets.webhooks.renewal import CHECK_BACK, LEASE, PATIENCE, Terms, renew
from cronless_dagster.assets.webhooks.subscriptions import JOB_TYPE
from cronless_dagster.engine.job_types import JobType
from cronless_dagster.scheduling.models import RetryPolicy
from cronless_dagster.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from cronless_dagster.assets.fetching import Fetcher
    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob

FETCHER_KEY = "fetcher"
# A lease is renewed with a fifth of it left: some six hours of further tries, before the fallback's next day.
RETRY = RetryPolicy(max_attempts=12, delay=timedelta(minutes=1), max_delay=timedelta(hours=1))


def webhook_renewal(
    *,
    name: str = JOB_TYPE,
    route: Literal["run", "queue"] = "run",
    lease_wish: timedelta = LEASE,
    check_back: timedelta = CHECK_BACK,
    patience: int = PATIENCE,
    public_url: str | None = None,
    fetcher: Callable[[], Fetcher] | None = None,
    fresh_within: timedelta | None = None,
    retry: RetryPolicy = RETRY,
    **options: Any,
) -> JobType:
    """Return the job type that renews WebSub subscriptions; `subscriptions.subscribe` makes its jobs.

    Args:
        name: The job type, and its asset's key.
        route: "run": a Dagster run for each batch. "queue": a message for each renewal, done by workers.
        lease_wish: The lease that hubs are asked for.
        check_back: After so long without the hub's verification it is asked again.
        patience: After so many requests that a hub never verified, each further one counts as failed.
        public_url: Where hubs reach `cronless callbacks`; None: CRONLESS_PUBLIC_URL.
        fetcher: Returns what sends the requests; None: the resource `fetcher` in a Dagster run, and otherwise one by
            the settings CRONLESS_FETCH_….
        fresh_within: The asset is overdue when nothing was renewed for so long; None: for a whole `lease_wish`.
        retry: What follows a refusal or a time-out; a hub's Retry-After is waited for in any case.
        options: Of `JobType`: `concurrency`, `limits`, `pool`, `priority`, ….
    """
    terms = Terms(lease=lease_wish, check_back=check_back, patience=patience)

    def handler(job: ClaimedJob, context: HandlerContext) -> datetime | None:
        sender = fetcher() if fetcher is not None else _fetcher(context)
        return renew(job, context.engine, sender, public_url or _settings().public_url, terms)

    def asset(job_type: JobType) -> Any:
        from cronless_dagster.assets.webhooks.asset import build_renewal_asset

        return build_renewal_asset(job_type, fresh_within or lease_wish)

    return JobType(
        name=name,
        handler=handler,
        route=route,
        retry=retry,
        resources={} if fetcher is not None else {FETCHER_KEY: _fetcher_resource},
        asset=asset,
        description="Renews WebSub subscriptions before their leases end.",
        **options,
    )


def _fetcher(context: HandlerContext) -> Fetcher:
    if context.dagster is not None:
        found: Fetcher = getattr(context.dagster.resources, FETCHER_KEY).fetcher()
        return found
    from cronless_dagster.assets.fetching.shared import fetcher_from_settings

    return fetcher_from_settings(_settings())


def _fetcher_resource() -> Any:
    from cronless_dagster.assets.fetching.resource import FetcherResource

    return FetcherResource()


def _settings() -> Settings:
    return Settings.from_env(os.environ)
