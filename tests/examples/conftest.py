"""A database with a user for the workers, a broker, and the installed Node.js worker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.examples.support import NodeWorkers, install, make_user
from tests.store.rows import sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker
    from tests.processes import Spawner


@pytest.fixture(scope="session")
def node_worker() -> Path:
    """The directory of the installed worker."""
    return install(Path(os.environ["CRONLESS_TEST_DIRECTORY"]))


@pytest.fixture
def worker_user(virtual_engine: Engine) -> Iterator[str]:
    """A user of the database that has the worker's role only."""
    name = make_user(virtual_engine)
    yield name
    sql(virtual_engine, f"DROP ROLE {name}")


@pytest.fixture
def workers(
    virtual_engine: Engine,
    broker: Broker,
    node_worker: Path,
    tmp_path: Path,
    worker_user: str,
    spawn: Spawner,
) -> NodeWorkers:
    """Start Node.js workers on a database of the test's own and the run's broker."""
    return NodeWorkers(virtual_engine, broker, node_worker, tmp_path, spawn, worker_user)
