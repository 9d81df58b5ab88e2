"""A database that the engine's tests share, emptied before each: cloning one takes longer than most of them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from cronless_dagster.store.clock import make_virtual
from cronless_dagster.store.database import create_store_engine
from tests.engine.support import NOON, World, types_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from cronless_dagster.store.embedded import EmbeddedPostgres


@pytest.fixture(scope="session")
def lasting_engine(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[Engine]:
    """An engine on a database that lasts as long as this worker."""
    import psycopg

    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template_database}".encode())
        engine = create_store_engine(postgres_server.url(name))
        yield engine
        engine.dispose()
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


@pytest.fixture
def virtual(lasting_engine: Engine) -> Engine:
    """The lasting database, empty, its clock at noon."""
    with lasting_engine.begin() as connection:
        connection.execute(
            text(
                "TRUNCATE cronless.scheduled_job, cronless.job_claim, cronless.job_type, cronless.progress,"
                " cronless.job_execution"
            )
        )
    make_virtual(lasting_engine, NOON)
    return lasting_engine


@pytest.fixture
def world(virtual: Engine) -> World:
    """A database whose clock stands at noon, with the job type "work" and an executor of its own."""
    return World(virtual, types_of())
