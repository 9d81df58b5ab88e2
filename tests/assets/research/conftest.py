"""A fetcher that may reach this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronless_dagster.assets.fetching import Fetcher
    from cronless_dagster.assets.research.reading import Reader
    from tests.assets.web import WebServer


@pytest.fixture
def web() -> Iterator[WebServer]:
    """A server without routes."""
    from tests.assets.web import WebServer

    with WebServer() as server:
        yield server


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    """A fetcher that may reach the loopback."""
    from cronless_dagster.assets.fetching import Fetcher
    from tests.assets.research.support import LOOPBACK

    with Fetcher(LOOPBACK) as made:
        yield made


@pytest.fixture
def web_reader(fetcher: Fetcher) -> Reader:
    """A reader without files."""
    from tests.assets.research.support import reader

    return reader(fetcher)
