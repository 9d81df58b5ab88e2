"""The whole of Dagster as processes: web server, daemon, code server, on PostgreSQL.

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
from typing import TYPE_CHECKING, Any

from cronless_dagster.store.database import create_store_engine
from tests.dagster.site import ROOT, eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

    from tests.processes import Spawner

RUNS = """
{ runsOrError { ... on Runs { results { runId status jobName tags { key value } } } } }
"""
HEALTH = "{ instance { daemonHealth { allDaemonStatuses { daemonType healthy } } } }"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Stack:
    """Dagster's processes, each started and killed by name.

    ``module`` holds the definitions, ``daemon`` is started as Dagster's daemon; ``environment`` is added to that of
    all processes.
    """

    def __init__(
        self,
        url: str,
        directory: Path,
        spawn: Spawner,
        *,
        module: str,
        daemon: str = "dagster._daemon",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.engine, self.home, self.spawn = create_store_engine(url), directory, spawn
        self.module, self.daemon = module, daemon
        self.port = free_port()
        shutil.copy(ROOT / "dagster.yaml", directory)
        (directory / "workspace.yaml").write_text(
            f"load_from:\n  - grpc_server: {{socket: {directory}/code.sock, location_name: stack}}\n",
            encoding="utf-8",
        )
        self.environment = {
            "DAGSTER_HOME": str(directory),
            "DAGSTER_POSTGRES_URL": url,
            "CRONLESS_DATABASE_URL": url,
            **(environment or {}),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        """Where the UI is."""
        return f"http://127.0.0.1:{self.port}"

    def start_all(self) -> None:
        """Start everything, and wait until it is well."""
        self.start("code")
        eventually((self.home / "code.sock").exists, "the code server's start")
        self.start("daemon")
        self.start("web")
        try:
            eventually(self.healthy, "Dagster's start")
        except TimeoutError as error:
            raise AssertionError(self.logs()) from error

    def logs(self) -> str:
        """Return the ends of what the processes wrote."""
        return "\n".join(
            f"--- {log.stem}\n{log.read_text(errors='replace')[-3_000:]}" for log in self.home.glob("*.log")
        )

    def start(self, name: str) -> None:
        """Start "code", "daemon" or "web"."""
        workspace = ("-w", str(self.home / "workspace.yaml"))
        socket_path = self.home / "code.sock"
        if name == "code":
            socket_path.unlink(missing_ok=True)
        command = {
            "code": (
                *("-m", "dagster", "api", "grpc", "--socket", str(socket_path), "--location-name", "stack"),
                *("--module-name", self.module),
            ),
            "daemon": ("-m", self.daemon, "run", *workspace),
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
        request = urllib.request.Request(  # noqa: S310 - our own address
            f"{self.address}/graphql",
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
