"""The whole of Dagster: web server, daemon, code server and runs as processes, on PostgreSQL.

What `dagster dev` starts, except that the test is the supervisor and so can kill each of them.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from cronless_dagster.store.database import create_store_engine
from tests.dagster import switches
from tests.dagster.job_types import CREATE_CALLS
from tests.dagster.site import ROOT, eventually
from tests.dagster.support import add_due, assert_all_done_once, outcomes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from tests.dagster.conftest import Ground
    from tests.processes import Spawner

pytestmark = [pytest.mark.dagster, pytest.mark.crash, pytest.mark.slow]

RUNS = """
{ runsOrError { ... on Runs { results { runId status jobName tags { key value } } } } }
"""
SENSOR = """
query ($selector: SensorSelector!) {
  sensorOrError(sensorSelector: $selector) {
    ... on Sensor { sensorState { status ticks(limit: 20) { status skipReason error { message } } } }
  }
}
"""
HEALTH = "{ instance { daemonHealth { allDaemonStatuses { daemonType healthy } } } }"
ASSET = """
{ assetOrError(assetKey: {path: ["cronless", "digest"]}) {
    ... on Asset {
      assetMaterializations(limit: 50) { metadataEntries { label ... on IntMetadataEntry { intValue } } }
    } } }
"""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Stack:
    """Dagster's processes, each started and killed by name."""

    def __init__(self, url: str, directory: Path, spawn: Spawner) -> None:
        self.engine, self.home, self.spawn = create_store_engine(url), directory, spawn
        self.port = free_port()
        (directory / "switches").mkdir()
        shutil.copy(ROOT / "dagster.yaml", directory)
        (directory / "workspace.yaml").write_text(
            f"load_from:\n  - grpc_server: {{socket: {directory}/code.sock, location_name: stack}}\n",
            encoding="utf-8",
        )
        self.environment = {
            "DAGSTER_HOME": str(directory),
            "DAGSTER_POSTGRES_URL": url,
            "CRONLESS_DATABASE_URL": url,
            switches.VARIABLE: str(directory / "switches"),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start "code", "daemon" or "web"."""
        workspace = ("-w", str(self.home / "workspace.yaml"))
        socket_path = self.home / "code.sock"
        if name == "code":
            socket_path.unlink(missing_ok=True)
        command = {
            "code": (
                *("-m", "dagster", "api", "grpc", "--socket", str(socket_path), "--location-name", "stack"),
                *("--module-name", "tests.dagster.location"),
            ),
            "daemon": ("-m", "dagster._daemon", "run", *workspace),
            "web": ("-m", "dagster_webserver", "-h", "127.0.0.1", "-p", str(self.port), *workspace),
        }[name]
        self.processes[name] = self.spawn(
            sys.executable,
            *command,
            env=self.environment,
            cwd=str(ROOT),
            output=self.home / f"{name}.log",
        )

    def kill(self, name: str) -> None:
        """Kill a process as the kernel would."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait(timeout=30)

    def graphql(self, query: str, **variables: Any) -> Any:
        """Ask the web server what the UI asks it."""
        request = urllib.request.Request(  # our own address
            f"http://127.0.0.1:{self.port}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            body = json.load(answer)
        assert "errors" not in body, body
        return body["data"]

    def healthy(self) -> bool:
        """Tell whether the web server answers and the daemons say that they are well."""
        try:
            statuses = self.graphql(HEALTH)["instance"]["daemonHealth"]["allDaemonStatuses"]
        except (OSError, urllib.error.URLError):
            return False
        return any(one["daemonType"] == "SENSOR" and one["healthy"] for one in statuses)

    def runs(self) -> list[dict[str, Any]]:
        """Return all runs as the UI lists them."""
        return list(self.graphql(RUNS)["runsOrError"]["results"])

    def wait_until_done(self, ids: list[UUID]) -> None:
        """Wait until each job has succeeded, and its run too."""

        def done() -> bool:
            with self.engine.connect() as connection:
                succeeded = connection.scalar(
                    text(
                        "SELECT count(DISTINCT job_id) FROM cronless.job_execution"
                        " WHERE outcome = 'success' AND job_id = ANY (:ids)"
                    ),
                    {"ids": ids},
                )
            ended = all(run["status"] in ("SUCCESS", "FAILURE", "CANCELED") for run in self.runs())
            return succeeded == len(ids) and ended

        eventually(done, f"the success of {len(ids)} jobs", seconds=300)


@pytest.fixture(scope="module")
def stack(ground: Ground) -> Iterator[Stack]:
    """Start all of Dagster once."""
    with ground() as (url, directory, spawn):
        made = Stack(url, directory, spawn)
        with made.engine.begin() as connection:
            connection.execute(CREATE_CALLS)
        made.start("code")
        eventually((directory / "code.sock").exists, "the code server's start")
        made.start("daemon")
        made.start("web")
        try:
            eventually(made.healthy, "Dagster's start")
        except TimeoutError as error:
            logs = "\n".join(log.read_text()[-3_000:] for log in directory.glob("*.log"))
            raise AssertionError(logs) from error
        yield made
        made.engine.dispose()


def test_due_jobs_become_runs_and_get_their_next_occurrence(stack: Stack) -> None:
    """Four hundred due jobs of two types are two runs that succeed, and nobody had to turn anything on."""
    before = datetime.now(UTC)
    ids = add_due(stack.engine, "digest", 300) + add_due(stack.engine, "renewal", 100)
    stack.wait_until_done(ids)
    assert_all_done_once(stack.engine, ids, after=before)
    assert sorted((run["jobName"], run["status"]) for run in stack.runs()) == [
        ("cronless_digest", "SUCCESS"),
        ("cronless_renewal", "SUCCESS"),
    ]
    selector = {
        "repositoryLocationName": "stack",
        "repositoryName": "__repository__",
        "sensorName": "cronless_tick",
    }
    state = stack.graphql(SENSOR, selector=selector)["sensorOrError"]["sensorState"]
    assert state["status"] == "RUNNING"
    assert "SUCCESS" in {tick["status"] for tick in state["ticks"]}
    assert not [tick["error"] for tick in state["ticks"] if tick["error"]]
    [materialization] = stack.graphql(ASSET)["assetOrError"]["assetMaterializations"]
    numbers = {entry["label"]: entry.get("intValue") for entry in materialization["metadataEntries"]}
    assert (numbers["claimed"], numbers["succeeded"], numbers["failed"]) == (300, 300, 0)


def test_all_of_dagster_is_killed_one_after_the_other(stack: Stack) -> None:
    """The code server with its answer in hand, then the daemon, while jobs are due: all are done once."""
    with stack.engine.connect() as connection:
        earlier = list(connection.scalars(text("SELECT id FROM cronless.scheduled_job")).all())
    before = datetime.now(UTC)
    (stack.home / "switches" / "die_after_commit").touch()
    ids = add_due(stack.engine, "digest", 50) + add_due(stack.engine, "renewal", 50)
    stack.processes["code"].wait(timeout=180)
    stack.start("code")
    stack.kill("daemon")
    ids += add_due(stack.engine, "digest", 50)
    stack.start("daemon")
    stack.wait_until_done(ids)
    assert_all_done_once(stack.engine, [*earlier, *ids], after=before)
    assert outcomes(stack.engine) == {"success": len(earlier) + len(ids)}
    assert {run["status"] for run in stack.runs()} == {"SUCCESS"}
