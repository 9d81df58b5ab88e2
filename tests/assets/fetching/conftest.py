"""A local web server, and fetchers that may reach it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from cronless_dagster.assets.fetching import Fetcher, FetchLimits
from tests.assets.web import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def web() -> Iterator[WebServer]:
    """A web server on 127.0.0.1 without any route."""
    with WebServer() as server:
        yield server


@pytest.fixture
def make() -> Iterator[Callable[..., Fetcher]]:
    """Makes fetchers that may reach 127.0.0.1 and nothing else that is private."""
    with ExitStack() as made:

        def fetcher(*, resolve: Any = None, **limits: Any) -> Fetcher:
            chosen = {"networks": ("127.0.0.1/32",), "robots": False, **limits}
            more = {"resolve": resolve} if resolve else {}
            return made.enter_context(Fetcher(FetchLimits(**chosen), **more))

        yield fetcher
