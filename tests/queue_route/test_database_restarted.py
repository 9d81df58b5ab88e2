"""PostgreSQL goes away under running workers and comes back: they go on by themselves, and lose nothing."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.store.database import create_store_engine
from cronless_dagster.store.embedded import EmbeddedPostgres
from cronless_dagster.store.migrate import upgrade
from tests.conftest import SERVER_OPTIONS
from tests.queue_route.support import Route
from tests.worker.support import until

if TYPE_CHECKING:
    from pathlib import Path

    from cronless_dagster.rabbitmq.address import Broker
    from tests.processes import Spawner

pytestmark = [pytest.mark.postgres, pytest.mark.crash, pytest.mark.slow]

JOBS = 3_000


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGKILL])
def test_restarted_under_workers(
    server_directory: Path, broker: Broker, spawn: Spawner, tmp_path: Path, how: signal.Signals
) -> None:
    """Shut down at once, or killed: results wait in the workers' memory, and each job runs once."""
    with EmbeddedPostgres(server_directory, options=SERVER_OPTIONS) as server:
        url = server.url()
        upgrade(url)
        route = Route(create_store_engine(url), broker, spawn, tmp_path)
        route.clean_tick()
        workers = [route.worker() for _ in range(2)]
        until(lambda: route.consumers() == 2, "both consume")
        go = tmp_path / "go"
        ids = route.add(JOBS - 4, seconds=0.005) + route.add(4, wait_for=str(go))
        assert route.clean_tick().published == {"work": JOBS}
        route.wait_until_done(JOBS // 10)
        assert server.pid is not None
        os.kill(server.pid, how)
        until(lambda: server.pid is None, "the server's end")
    # A job that runs all through it ends while nobody can record it.
    go.touch()
    with EmbeddedPostgres(server_directory, options=SERVER_OPTIONS) as server:
        assert server.url() == url
        assert 0 < route.outcomes()["success"] < JOBS
        route.wait_until_done(JOBS)
        counts = [worker.stop() for worker in workers]
        # A commit whose answer was lost is found out by asking again, and counts as discarded.
        assert JOBS - 2_000 <= sum(one["done"] for one in counts) <= JOBS
        assert sum(one["done"] + one["discarded"] for one in counts) == JOBS
        assert set(route.calls().values()) == {1}
        assert set(route.tries().values()) == {1}
        route.assert_all_done_once(ids)
        route.engine.dispose()
