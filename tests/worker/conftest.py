"""A database and a broker with queues of a test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.worker.support import Site

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker


@pytest.fixture
def site(engine: Engine, broker: Broker) -> Site:
    """A fresh migrated database, and queues that nobody else uses."""
    return Site(engine, broker)
