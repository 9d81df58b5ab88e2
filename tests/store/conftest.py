"""One database for most tests of the store: emptied before each test instead of made anew."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import text

from cronless_dagster.store.clock import make_virtual
from cronless_dagster.store.database import create_store_engine
from cronless_dagster.store.history import ensure_partitions
from tests.store.rows import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from cronless_dagster.store.embedded import EmbeddedPostgres

_EMPTY = (
    text("TRUNCATE cronless.scheduled_job, cronless.job_claim, cronless.progress, cronless.job_type"),
    # A TRUNCATE of the history would take its sixteen and more partitions one by one.
    text("DELETE FROM cronless.job_execution"),
    text("TRUNCATE cronless.check_done, cronless.health_snapshot"),
)


@pytest.fixture(scope="session")
def emptied_engine(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[Engine]:
    """An engine on a database that the tests of one worker share."""
    name = f"s_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template_database}".encode())
    engine = create_store_engine(postgres_server.url(name))
    yield engine
    engine.dispose()
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def virtual_engine(emptied_engine: Engine) -> Engine:
    """An engine on an empty database whose clock stands at `NOW`."""
    make_virtual(emptied_engine, NOW)
    with emptied_engine.begin() as connection:
        for statement in _EMPTY:
            connection.execute(statement)
        # A tick that a test dates years ahead drops the history of now.
        ensure_partitions(connection, NOW, ahead=3)
    return emptied_engine
