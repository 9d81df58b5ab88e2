"""A Dagster site for crash tests: Postgres storage, a code server process, runs as processes, no daemon.

The daemon's work is done step by step by the test, so that it can die between any two of them.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import dagster as dg
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._grpc.client import DagsterGrpcClient
from dagster_graphql.test.utils import execute_dagster_graphql
from sqlalchemy import text

from cronless_dagster.store.clock import make_virtual
from cronless_dagster.store.database import create_store_engine
from tests.dagster import switches
from tests.dagster.daemon import LOCATION, target
from tests.dagster.job_types import CREATE_CALLS, job_types
from tests.dagster.support import add_due, hold_and_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.processes import Spawner

ROOT = Path(__file__).resolve().parents[2]
GUARD_SECONDS = 180.0


def eventually(happened: Callable[[], Any], what: str, seconds: float = GUARD_SECONDS) -> Any:
    """Wait until something has happened; a guard against a hang, no measure of speed."""
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {seconds:g} s")
        time.sleep(0.1)
    return found


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Site:
    """The processes and the databases of one module's tests."""

    def __init__(self, url: str, directory: Path, spawn: Spawner) -> None:
        self.url, self.home, self.spawn = url, directory, spawn
        self.engine = create_store_engine(url)
        self.socket = str(directory / "code.sock")
        self.switches = directory / "switches"
        self.switches.mkdir()
        shutil.copy(ROOT / "dagster.yaml", directory)
        self.environment = {
            "DAGSTER_HOME": str(directory),
            "DAGSTER_POSTGRES_URL": url,
            "CRONLESS_DATABASE_URL": url,
            switches.VARIABLE: str(self.switches),
        }

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._stack.callback(self.engine.dispose)
        self._stack.enter_context(_environment(self.environment))
        self.instance = self._stack.enter_context(dg.DagsterInstance.from_config(str(self.home)))
        self.start_code_server()
        self.workspace = self._stack.enter_context(
            WorkspaceProcessContext(self.instance, target(self.socket))
        )
        with self.engine.begin() as connection:
            connection.execute(CREATE_CALLS)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def reset(self) -> None:
        """Start over: no jobs, no runs, no switches, the clock where everybody else's is."""
        for run in self.instance.get_runs():
            self.instance.delete_run(run.run_id)
        for switch in self.switches.iterdir():
            switch.unlink()
        with self.engine.begin() as connection:
            connection.execute(
                text(
                    "TRUNCATE cronless.scheduled_job, cronless.job_claim, cronless.job_execution, public.calls"
                )
            )
        self.started_at = datetime.now(UTC)
        make_virtual(self.engine, self.started_at)
        if self.code_server.poll() is not None:
            self.restart_code_server()

    def start_code_server(self) -> None:
        """Start the code server and wait until it answers."""
        Path(self.socket).unlink(missing_ok=True)
        self.code_server = self.spawn(
            *(sys.executable, "-m", "dagster", "api", "grpc", "--socket", self.socket),
            *("--module-name", "tests.dagster.location", "--location-name", LOCATION),
            cwd=str(ROOT),
            output=self.home / "code_server.log",
        )
        client = DagsterGrpcClient(socket=self.socket)

        def answers() -> bool:
            assert self.code_server.poll() is None, (self.home / "code_server.log").read_text()
            return client.health_check_query() == "SERVING"

        eventually(answers, "the code server's start")

    def restart_code_server(self) -> None:
        """Do what a supervisor does."""
        self.code_server.wait(timeout=30)
        self.start_code_server()
        self.workspace.refresh_workspace()

    def kill_code_server(self) -> None:
        """Kill the code server alone; its runs are processes of their own."""
        self.code_server.send_signal(signal.SIGKILL)
        self.code_server.wait(timeout=30)

    def switch(self, name: str, value: str = "") -> None:
        """Turn a switch on."""
        partial = self.switches / f"{name}.partial"
        partial.write_text(value, encoding="utf-8")
        partial.rename(self.switches / name)

    def forward(self, **span: float) -> None:
        """Let time pass."""
        with self.engine.begin() as connection:
            connection.execute(
                text("UPDATE cronless.clock SET virtual_now = virtual_now + :span"),
                {"span": timedelta(**span)},
            )

    def add(self, count: int, job_type: str = "digest", **options: Any) -> list[UUID]:
        """Add due jobs."""
        return add_due(self.engine, job_type, count, now=self.started_at, **options)

    def latest_tick(self) -> Any:
        """Return the sensor's latest tick, or None."""
        repository = next(
            iter(self.workspace.create_request_context().code_locations[0].get_repositories().values())
        )
        sensor = repository.get_sensor("cronless_tick")
        ticks = self.instance.get_ticks(sensor.get_remote_origin_id(), sensor.selector_id, limit=1)
        return ticks[0] if ticks else None

    def tick(self) -> Any:
        """Do the daemon's work for one tick; returns the tick as the UI shows it."""

        def seen() -> Any:
            tick = self.latest_tick()
            return None if tick is None else (tick.tick_id, tick.status)

        before = seen()

        def evaluated() -> bool:
            list(execute_sensor_iteration(self.workspace, logging.getLogger("daemon"), None, None))
            return seen() not in (before, None) and self.latest_tick().status.value != "STARTED"

        eventually(evaluated, "a tick")
        return self.latest_tick()

    def tick_and_die(self, point: str) -> None:
        """Do the same in a process that is killed at a named point."""
        time.sleep(1.0)  # the sensor's own minimum interval
        daemon = self.spawn(
            *(sys.executable, "-m", "tests.dagster.daemon", self.socket, point),
            cwd=str(ROOT),
            output=self.home / "daemon.log",
        )
        status = daemon.wait(timeout=GUARD_SECONDS)
        assert status == -signal.SIGKILL, (self.home / "daemon.log").read_text()[-4_000:]

    def runs(self, *statuses: str) -> list[dg.DagsterRun]:
        """Return the runs of these statuses, or all, the oldest first."""
        wanted = [dg.DagsterRunStatus(status) for status in statuses]
        return list(self.instance.get_runs(filters=dg.RunsFilter(statuses=wanted)))[::-1]

    def launch(self, run: dg.DagsterRun) -> str:
        """Start a run as a process, as the queue's daemon does, and return its id."""
        self.instance.launch_run(run.run_id, self.workspace.create_request_context())
        return run.run_id

    def waits(self, run_id: str, switch: str) -> None:
        """Wait until a job of a run waits for a switch."""

        def waiting() -> bool:
            run = self.instance.get_run_by_id(run_id)
            if run is not None and run.is_finished:
                said = [entry.user_message for entry in self.instance.all_logs(run_id)]
                raise AssertionError(f"the run ended before its job waited for {switch!r}: {said}")
            return (self.switches / f"{switch}.waiting").exists()

        eventually(waiting, f"a job that waits for {switch!r}")

    def ended(self, run_id: str) -> str:
        """Wait until a run has ended; returns its status."""

        def status() -> str | None:
            run = self.instance.get_run_by_id(run_id)
            return run.status.value if run is not None and run.is_finished else None

        return str(eventually(status, f"the end of run {run_id}"))

    def launch_all(self) -> list[str]:
        """Start all queued runs, wait for their ends, and return how they ended."""
        started = [self.launch(run) for run in self.runs("QUEUED")]
        return [self.ended(run_id) for run_id in started]

    def work_off(self, most: int = 20) -> None:
        """Tick and do the work of all runs without their processes, until nothing is left open."""
        for _ in range(most):
            self.tick()
            queued = self.runs("QUEUED")
            for run in queued:
                hold_and_run(self.engine, job_types, run)
                self.instance.delete_run(run.run_id)
            if not queued and not self.open_claims():
                return
            self.forward(minutes=1)
        raise AssertionError(f"claims are still open: {self.open_claims()}")

    def open_claims(self) -> list[Any]:
        """Return the claims that aren't closed."""
        with self.engine.connect() as connection:
            return list(
                connection.execute(
                    text("SELECT * FROM cronless.job_claim WHERE state <> 'CLOSED' ORDER BY created_at")
                ).all()
            )

    def calls(self) -> dict[UUID, int]:
        """Return how often the handler was called for each job."""
        with self.engine.connect() as connection:
            rows = connection.execute(
                text("SELECT split_part(key, ':', 1) AS id, count(*) AS number FROM public.calls GROUP BY 1")
            )
            return {UUID(row.id): row.number for row in rows}

    def graphql(self, query: str, **variables: Any) -> Any:
        """Do what a button of the UI does."""
        result = execute_dagster_graphql(self.workspace.create_request_context(), query, variables)
        assert not result.errors, result.errors
        return result.data
