"""One fetcher for each process, so that its connections and its robots.txt files outlive a job."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cronless_dagster.assets.fetching.fetcher import Fetcher
from cronless_dagster.assets.fetching.limits import FetchLimits

if TYPE_CHECKING:
    from cronless_dagster.settings import Settings


@cache
def shared_fetcher(limits: FetchLimits) -> Fetcher:
    """Return this process's fetcher with these limits; it lives as long as the process."""
    return Fetcher(limits)


def limits_from_settings(settings: Settings) -> FetchLimits:
    """Return the limits that the settings `fetch_…` name."""
    return FetchLimits(
        per_host=settings.fetch_per_host,
        seconds=settings.fetch_seconds,
        bytes=settings.fetch_bytes,
        networks=settings.fetch_networks,
    )


def fetcher_from_settings(settings: Settings) -> Fetcher:
    """Return this process's fetcher for the settings."""
    return shared_fetcher(limits_from_settings(settings))
