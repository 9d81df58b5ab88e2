"""Fetching over HTTP for others: addresses come from tenants, so every limit and check is on by default."""

from __future__ import annotations

from cronless_dagster.assets.fetching.errors import FetchError, FetchFailed, FetchLater, FetchRefused
from cronless_dagster.assets.fetching.fetcher import Fetched, Fetcher, NotModified, Response
from cronless_dagster.assets.fetching.limits import FetchLimits
from cronless_dagster.assets.fetching.retry_after import retry_after

__all__ = [
    "FetchError",
    "FetchFailed",
    "FetchLater",
    "FetchLimits",
    "FetchRefused",
    "Fetched",
    "Fetcher",
    "NotModified",
    "Response",
    "retry_after",
]
