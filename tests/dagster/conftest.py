"""What the tests of Dagster's processes stand on: a database, a directory and processes for each of them."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes import Spawner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from cronless_dagster.store.embedded import EmbeddedPostgres
    from tests.dagster.site import Site

    Ground = Callable[[], AbstractContextManager[tuple[str, Path, Spawner]]]


@pytest.fixture(scope="session")
def ground(postgres_server: EmbeddedPostgres, template_database: str) -> Ground:
    """Make a migrated database, a short directory (it holds a socket) and a spawner that outlive one test."""
    import psycopg

    @contextmanager
    def make() -> Iterator[tuple[str, Path, Spawner]]:
        name, spawn = f"t_{uuid.uuid4().hex}", Spawner()
        directory = Path(tempfile.mkdtemp(prefix="cronless-d-"))
        with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {template_database}".encode())
        try:
            yield postgres_server.url(name), directory, spawn
        finally:
            spawn.kill_all()
            shutil.rmtree(directory, ignore_errors=True)
            with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
                admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())

    return make


@pytest.fixture(scope="session")
def shared_site(ground: Ground) -> Iterator[Site]:
    """Start the site once for all its tests."""
    from tests.dagster.site import Site

    with ground() as (url, directory, spawn), Site(url, directory, spawn) as site:
        yield site


@pytest.fixture
def site(shared_site: Site) -> Site:
    """The site, as if it had just been set up."""
    shared_site.reset()
    return shared_site
