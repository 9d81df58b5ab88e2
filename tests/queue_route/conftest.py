"""The queue route on the run's servers, or on a broker that the test may do anything to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cronless_dagster.rabbitmq.address import Broker
from tests.queue_route.support import Route

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.private import PrivateBroker
    from tests.processes import Spawner


@pytest.fixture
def route(engine: Engine, broker: Broker, spawn: Spawner, tmp_path: Path) -> Route:
    """A fresh migrated database, and queues that nobody else uses."""
    return Route(engine, broker, spawn, tmp_path)


@pytest.fixture
def own_route(engine: Engine, own_broker: PrivateBroker, spawn: Spawner, tmp_path: Path) -> Route:
    """The same on ``own_broker``, with short limits on what a tick waits for."""
    limits = {"connect_seconds": 5.0, "blocked_seconds": 1.0, "publish_seconds": 3.0}
    return Route(engine, Broker(own_broker.url, **limits), spawn, tmp_path)
