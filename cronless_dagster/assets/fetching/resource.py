"""The fetcher as a Dagster resource."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from cronless_dagster.assets.fetching.shared import limits_from_settings, shared_fetcher
from cronless_dagster.settings import Settings

if TYPE_CHECKING:
    from cronless_dagster.assets.fetching.fetcher import Fetcher


class FetcherResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # has no inner resource of its own
    """Within which limits sources are fetched. Connections belong to the process, not to this."""

    per_host: int = Field(
        default=0,
        description="How many sources are fetched from one host at once. 0: CRONLESS_FETCH_PER_HOST, else 4.",
    )
    seconds: float = Field(
        default=0.0,
        description="How long one fetch may take in all, in seconds. 0: CRONLESS_FETCH_SECONDS, else 20.",
    )
    bytes: int = Field(
        default=0,
        description="The largest document that is read, in bytes. 0: CRONLESS_FETCH_BYTES, else 5,000,000.",
    )
    networks: list[str] = Field(
        default=[],
        description=(
            "Private networks that sources and hubs may lie in, such as 10.0.0.0/8. Empty: CRONLESS_FETCH_NETWORKS,"
            " else none."
        ),
    )
    user_agent: str = Field(
        default="",
        description="What the client calls itself to servers. Empty: cronless_dagster and its version.",
    )
    robots: bool = Field(
        default=True, description="Whether robots.txt is asked what may be fetched (RFC 9309)."
    )

    def fetcher(self) -> Fetcher:
        """Return this process's fetcher.

        Raises:
            SettingsError: The environment's settings can't be used.
            FetchError: What is given here can't be used.
        """
        standard = limits_from_settings(Settings.from_env(os.environ))
        return shared_fetcher(
            replace(
                standard,
                per_host=self.per_host or standard.per_host,
                seconds=self.seconds or standard.seconds,
                bytes=self.bytes or standard.bytes,
                networks=tuple(self.networks) or standard.networks,
                user_agent=self.user_agent or standard.user_agent,
                robots=self.robots,
            )
        )
