"""The shared fixtures keep their promises: fresh databases, a virtual clock, no process left."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
from sqlalchemy import create_engine, text

from cronless_dagster.store.clock import current_time
from tests.conftest import VIRTUAL_NOW
from tests.processes import Spawner

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

DETACH = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
"""


def _has_our_schema(url: str) -> bool:
    made = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with made.connect() as connection:
        found = connection.scalar(text("SELECT to_regclass('cronless.scheduled_job')"))
    made.dispose()
    return found is not None


def test_databases_are_fresh_and_apart(
    new_database: Callable[..., str], pg_url: str, empty_pg_url: str
) -> None:
    """Each is another one; only the empty one lacks our schema."""
    more = new_database()
    assert len({more, pg_url, empty_pg_url}) == 3
    assert _has_our_schema(more)
    assert _has_our_schema(pg_url)
    assert not _has_our_schema(empty_pg_url)


def test_a_virtual_clock_stands_still(virtual_engine: Engine) -> None:
    """It says what it was set to, in every transaction."""
    for _ in range(2):
        with virtual_engine.begin() as connection:
            assert current_time(connection) == VIRTUAL_NOW


def test_a_spawned_process_ends_with_all_it_started() -> None:
    """A grandchild in a session of its own, whose parent is gone, is found and killed too."""
    spawner = Spawner()
    process = spawner(sys.executable, "-c", DETACH, stdout=subprocess.PIPE)
    assert process.stdout is not None
    grandchild = psutil.Process(int(process.stdout.readline()))
    process.wait(timeout=60)
    assert grandchild in spawner.alive()
    spawner.kill_all()
    assert not spawner.alive()
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
