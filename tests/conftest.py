"""Fixtures that all tests share: one PostgreSQL, a fresh database for each test, processes that end.

The server is one for all workers of a run, in a short temporary directory; a test's database is cloned from a
migrated template, which takes some 50 ms.

- ``pg_url``, ``engine``: a fresh migrated database, its address and an engine on it
- ``virtual_url``, ``virtual_engine``: the same, marked as having a virtual clock that stands at
``VIRTUAL_NOW`` - ``empty_pg_url``: a fresh database without our schema
- ``new_database``: makes as many more as a test wants: ``new_database()`` or ``new_database(migrated=False)``
- ``server_directory``: where a test that stops or kills a server may have one of its own
- ``spawn``: starts a process of its own session; it and all it started are killed when the test ends

Those for RabbitMQ are described in ``brokers.py``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings as hypothesis_settings

from tests.brokers import DIRECTORY_VARIABLE as _DIRECTORY_VARIABLE
from tests.brokers import FIXTURES as BROKER_FIXTURES
from tests.brokers import broker, broker_directory, broker_server, own_broker, stop_brokers  # noqa: F401 - fixtures
from tests.processes import OWNER_VARIABLE, Spawner, kill_owned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from cronless_dagster.store.embedded import EmbeddedPostgres

VIRTUAL_NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
"""Where a virtual clock stands at the start of a test: a Monday noon, a week from any zone's change."""

SERVER_OPTIONS = {
    # The operating system outlives every kill of these tests, so nothing has to reach the disk; commits stay
    # synchronous, because a test that kills the server counts what was committed.
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "max_connections": "300",
    "shared_buffers": "256MB",
}
TEMPLATE = "cronless_template"
TOGETHER = {
    "tests/browser/": "heavy",
    "tests/dagster/": "heavy",
    "tests/graphql/test_dagster.py": "heavy",
    "tests/demo/test_demo.py": "heavy",
    "tests/test_dagster_yaml.py": "heavy",
    "tests/store/test_embedded.py": "embedded",
    "tests/rabbitmq/test_private.py": "broker",
    "tests/rabbitmq/test_faults": "broker",
    "tests/rabbitmq/test_tls.py": "broker",
    "tests/worker/test_crashes": "broker",
    "tests/queue_route/": "broker",
    "tests/examples/test_node_worker.py::TestOwnBroker": "broker",
}
"""Tests that must not run side by side: Dagster's processes, and servers that are started and stopped."""
_TEMPLATE_LOCK = 541_907_365  # any number, the same in all workers

hypothesis_settings.register_profile("dev", deadline=None)
hypothesis_settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis_settings.load_profile("ci" if os.environ.get("CI") else "dev")


def _is_controller(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    """Make the run's directory and name, which the workers inherit through the environment."""
    if _is_controller(config):
        directory = Path(tempfile.mkdtemp(prefix="cronless-"))
        directory.chmod(0o711)  # as root the server has a user of its own, who must pass through
        os.environ[_DIRECTORY_VARIABLE] = str(directory)
        os.environ[OWNER_VARIABLE] = uuid.uuid4().hex


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no process and no file behind, whatever happened to the workers."""
    if _is_controller(config) and _DIRECTORY_VARIABLE in os.environ:
        from cronless_dagster.store.postmaster import stop_postmaster

        kill_owned(f"{os.environ.pop(OWNER_VARIABLE)}/")
        directory = Path(os.environ.pop(_DIRECTORY_VARIABLE))
        stop_postmaster((directory / "pg" / "data").resolve())
        stop_brokers(directory)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the database or a broker."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "postgres_server" in fixtures:
            item.add_marker(pytest.mark.postgres)
        if not BROKER_FIXTURES.isdisjoint(fixtures):
            item.add_marker(pytest.mark.rabbitmq)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep what belongs together on one worker: two Dagsters at once take all cores.

    By path, since pytest-xdist 3.8 loses the groups of its marker with pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((name for path, name in TOGETHER.items() if nodeid.startswith(path)), nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """The run's PostgreSQL: the first worker starts it, the last one stops it."""
    from cronless_dagster.store.embedded import EmbeddedPostgres

    directory = Path(os.environ[_DIRECTORY_VARIABLE]) / "pg"
    with EmbeddedPostgres(directory, options=SERVER_OPTIONS) as server:
        yield server


@pytest.fixture(scope="session")
def template_database(postgres_server: EmbeddedPostgres) -> str:
    """Name of a migrated database to clone from; made once in a run."""
    import psycopg

    from cronless_dagster.store.migrate import upgrade

    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
        admin.execute("SELECT pg_advisory_lock(%s)", (_TEMPLATE_LOCK,))
        if not admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone():
            unfinished = f"{TEMPLATE}_new"
            admin.execute(f"DROP DATABASE IF EXISTS {unfinished}".encode())
            upgrade(postgres_server.url(unfinished))
            admin.execute(f"ALTER DATABASE {unfinished} RENAME TO {TEMPLATE}".encode())
    return TEMPLATE


@pytest.fixture
def new_database(
    request: pytest.FixtureRequest, postgres_server: EmbeddedPostgres
) -> Iterator[Callable[..., str]]:
    """Make databases, migrated or empty, that are dropped when the test ends; returns their addresses."""
    import psycopg

    made: list[str] = []

    def make(*, migrated: bool = True) -> str:
        template = request.getfixturevalue("template_database") if migrated else "template1"
        name = f"t_{uuid.uuid4().hex}"
        with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        made.append(name)
        return postgres_server.url(name)

    yield make
    if made and postgres_server.pid is None:
        pytest.fail("PostgreSQL died during the test; a test that kills the server needs one of its own")
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
        for name in made:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


@pytest.fixture
def pg_url(new_database: Callable[..., str]) -> str:
    """Address of a fresh migrated database."""
    return new_database()


@pytest.fixture
def empty_pg_url(new_database: Callable[..., str]) -> str:
    """Address of a fresh database that knows nothing of us."""
    return new_database(migrated=False)


@pytest.fixture
def engine(pg_url: str) -> Iterator[Engine]:
    """An engine on ``pg_url``."""
    from cronless_dagster.store.database import create_store_engine

    made = create_store_engine(pg_url)
    yield made
    made.dispose()


@pytest.fixture
def virtual_engine(engine: Engine) -> Engine:
    """An engine on a fresh database whose clock stands at ``VIRTUAL_NOW``."""
    from cronless_dagster.store.clock import make_virtual

    make_virtual(engine, VIRTUAL_NOW)
    return engine


@pytest.fixture
def virtual_url(virtual_engine: Engine, pg_url: str) -> str:
    """Address of the database of ``virtual_engine``."""
    return pg_url


@pytest.fixture
def server_directory() -> Iterator[Path]:
    """A short directory for an ``EmbeddedPostgres`` of the test's own; in any case stopped and removed.

    Not below ``tmp_path``: every pytest that starts makes the parent of all those private to its user again,
    and as root the server has another one.
    """
    from cronless_dagster.store.postmaster import stop_postmaster

    directory = Path(tempfile.mkdtemp(prefix="own-", dir=os.environ[_DIRECTORY_VARIABLE])).resolve()
    yield directory
    for pgdata in directory.rglob("data"):
        stop_postmaster(pgdata)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def spawn() -> Iterator[Spawner]:
    """Start processes that end with the test, those they started included, however they detached."""
    spawner = Spawner()
    yield spawner
    spawner.kill_all()
