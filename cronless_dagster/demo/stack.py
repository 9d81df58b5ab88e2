"""Dagster's three processes for the demo: code server, daemon, web server."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Self

from cronless_dagster.demo.load import DemoError
from cronless_dagster.demo.processes import Processes, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

_WORKSPACE = """\
load_from:
  - grpc_server:
      host: 127.0.0.1
      port: {port}
      location_name: cronless_dagster
"""


class DagsterStack:
    """Dagster on loopback. Use as a context manager: leaving it ends all processes, the runs included."""

    def __init__(
        self, home: Path, environment: Mapping[str, str], *, logs: Path, instance_config: Path, port: int
    ) -> None:
        """Prepare.

        Args:
            home: Becomes DAGSTER_HOME.
            environment: Added to ours.
            logs: Directory for the processes' logs; not DAGSTER_HOME's own `logs`, since Dagster takes away what it
                finds there and uploads it, whatever it is.
            instance_config: The `dagster.yaml` to use.
            port: Of the web server; 0 for any free one.
        """
        self.home = home
        self.logs = logs
        self._config = instance_config
        # In dagster.yaml telemetry is off, but only this keeps the web server from uploading.
        more = {"DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "1"}
        self._processes = Processes(logs, {**environment, **more})
        self.port = port or free_port()
        self._code_port = free_port()

    @property
    def address(self) -> str:
        """Where the web server answers."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        """Start everything and wait until the web server answers.

        Raises:
            DemoError: A process ended, or the server did not answer in time.
        """
        if not _is_free(self.port):
            raise DemoError(f"port {self.port} is taken: name another one with --port")
        self.home.mkdir(parents=True, exist_ok=True)
        try:
            (self.home / "dagster.yaml").write_text(
                self._config.read_text(encoding="utf-8"), encoding="utf-8"
            )
        except FileNotFoundError as error:
            raise DemoError(f"{self._config} is missing: run the demo from a clone of the project") from error
        workspace = self.home / "workspace.yaml"
        workspace.write_text(_WORKSPACE.format(port=self._code_port), encoding="utf-8")
        try:
            self._start(workspace)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End everything."""
        self.stop()

    def news(self) -> Iterator[str]:
        """Start the code server again where it ended, as a supervisor would; yield a line that says so.

        Raises:
            DemoError: Another process ended.
        """
        return self._processes.news()

    def stop(self) -> None:
        """End all processes: the daemon before the code server, so that it launches nothing more."""
        self._processes.stop()

    def _start(self, workspace: Path) -> None:
        processes = self._processes
        processes.start(
            "code-server",
            "dagster", "api", "grpc", "--host", "127.0.0.1", "--port", str(self._code_port),
            "--module-name", "cronless_dagster.definitions", "--location-name", "cronless_dagster",
            restart=True,
        )  # fmt: skip
        processes.wait_for(f"127.0.0.1:{self._code_port}", lambda: not _is_free(self._code_port))
        processes.start("dagster-daemon", "dagster-daemon", "run", "-w", str(workspace))
        processes.start(
            "dagster-webserver",
            "dagster-webserver", "-h", "127.0.0.1", "-p", str(self.port), "-w", str(workspace),
        )  # fmt: skip
        processes.wait_for(self.address, self._answers)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/server_info", timeout=2) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) != 0
