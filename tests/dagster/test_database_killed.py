"""PostgreSQL itself is killed: what was committed stays, and nothing else has happened."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from sqlalchemy import text

from cronless_dagster.sensors.tick import TickFailed
from cronless_dagster.store.database import create_store_engine
from cronless_dagster.store.embedded import EmbeddedPostgres
from cronless_dagster.store.migrate import upgrade
from tests.dagster import switches
from tests.dagster.job_types import CREATE_CALLS, job_types
from tests.dagster.site import ROOT, eventually
from tests.dagster.support import Location, add_due, assert_all_done_once, hold_and_run, outcomes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.processes import Spawner

pytestmark = [pytest.mark.postgres, pytest.mark.crash, pytest.mark.slow]


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short directory that the server's own user may enter."""
    made = Path(tempfile.mkdtemp(prefix="cronless-k-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def kill(server: EmbeddedPostgres) -> None:
    """Kill the server as the kernel would."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: server.pid is None, "the server's death")


@pytest.mark.parametrize("run_dies", [False, True], ids=["alone", "with-the-run"])
def test_in_the_middle_of_a_run(
    directory: Path, spawn: Spawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, run_dies: bool
) -> None:
    """Ticks say why they fail and lose nothing; the run waits; after the restart all jobs are done once."""
    monkeypatch.setenv(switches.VARIABLE, str(tmp_path))
    before = datetime.now(UTC)
    with dg.DagsterInstance.ephemeral() as instance:
        with EmbeddedPostgres(directory) as server:
            url = server.url()
            upgrade(url)
            engine = create_store_engine(url)
            with engine.begin() as connection:
                connection.execute(CREATE_CALLS)
            location = Location(job_types, url, instance)
            ids = add_due(engine, "digest", 1) + add_due(engine, "digest", 9, payload={"wait_for": "dead"})
            [request] = location.tick().run_requests
            run = location.add_run(request)
            holder = spawn(
                *(sys.executable, "-m", "tests.dagster.run_one"),
                *(request.tags["cronless/claim"], run.run_id),
                env={"CRONLESS_DATABASE_URL": url},
                cwd=str(ROOT),
                output=tmp_path / "run.log",
            )
            eventually((tmp_path / "dead.waiting").exists, "a waiting job")
            kill(server)
            (tmp_path / "dead").touch()
            with pytest.raises(TickFailed, match="can't be reached"):
                location.tick()
            if run_dies:
                holder.kill()
                holder.wait(timeout=30)
        with EmbeddedPostgres(directory) as server:
            assert server.url() == url
            if run_dies:
                instance.report_run_failed(run, "its process was killed")
            else:
                assert holder.wait(timeout=180) == 0, (tmp_path / "run.log").read_text()
                # Jobs that needed the database themselves have failed, and wait for their next try.
                with engine.begin() as connection:
                    connection.execute(
                        text("UPDATE cronless.scheduled_job SET next_run_at = now() WHERE attempt > 0")
                    )
            for _ in range(3):
                for again in location.tick().run_requests:
                    hold_and_run(engine, job_types, location.add_run(again))
            assert_all_done_once(engine, ids, after=before)
            assert set(outcomes(engine)) <= ({"success"} if run_dies else {"success", "failure"})
            assert outcomes(engine)["success"] == 10
            engine.dispose()
