"""The fetcher of a process: by the settings, or by a Dagster resource's fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cronless_dagster.assets.fetching import FetchError, FetchLimits
from cronless_dagster.assets.fetching.resource import FetcherResource
from cronless_dagster.assets.fetching.shared import (
    fetcher_from_settings,
    limits_from_settings,
    shared_fetcher,
)
from cronless_dagster.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT = {
    "CRONLESS_FETCH_PER_HOST": "2",
    "CRONLESS_FETCH_SECONDS": "7",
    "CRONLESS_FETCH_BYTES": "123456",
    "CRONLESS_FETCH_NETWORKS": "10.0.0.0/8,fd00::/8",
}
LIMITS = FetchLimits(per_host=2, seconds=7, bytes=123_456, networks=("10.0.0.0/8", "fd00::/8"))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Forget the fetchers of the process."""
    shared_fetcher.cache_clear()
    yield
    shared_fetcher.cache_clear()


def test_settings() -> None:
    """Each setting is a limit, and the same settings share a fetcher."""
    settings = Settings.from_env(ENVIRONMENT)
    assert limits_from_settings(settings) == LIMITS
    assert limits_from_settings(Settings()) == FetchLimits()
    assert fetcher_from_settings(settings).limits == LIMITS
    assert fetcher_from_settings(settings) is fetcher_from_settings(Settings.from_env(ENVIRONMENT))


def test_resource_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields that are left out are the environment's, and the fetcher is the workers'."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert FetcherResource().fetcher() is fetcher_from_settings(Settings.from_env(ENVIRONMENT))


def test_resource_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields that are given win over the environment."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    resource = FetcherResource(
        per_host=1, seconds=2.5, bytes=99, networks=["192.168.0.0/16"], user_agent="Example/1", robots=False
    )
    assert resource.fetcher().limits == FetchLimits(
        per_host=1, seconds=2.5, bytes=99, networks=("192.168.0.0/16",), user_agent="Example/1", robots=False
    )


def test_resource_that_cannot_be() -> None:
    """What can't be used is said to be so."""
    with pytest.raises(FetchError, match="'everything' is no network"):
        FetcherResource(networks=["everything"]).fetcher()
