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
from uuid import UUID

import dagster as dg
import pytest

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


def test_in_the_middle_of_a_run(
    directory: Path, spawn: Spawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run fails, ticks say why and lose nothing, and after the restart all jobs are done once."""
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
            assert holder.wait(timeout=180) == 1, (tmp_path / "run.log").read_text()
            with pytest.raises(TickFailed, match="can't be reached"):
                location.tick()
        with EmbeddedPostgres(directory) as server:
            assert server.url() == url
            assert outcomes(engine).get("success", 0) <= 1
            instance.report_run_failed(run, "the database went away")
            for _ in range(3):
                for again in location.tick().run_requests:
                    child = hold_and_run(engine, job_types, location.add_run(again))
                    assert child.claim_id == UUID(again.tags["cronless/claim"])
            assert_all_done_once(engine, ids, after=before)
            assert outcomes(engine) == {"success": 10}
            engine.dispose()
