"""Dagster's three processes for the demo: code server, daemon, web server; started, watched and ended as one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cronless_dagster.demo import guarded
from cronless_dagster.demo.load import DemoError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

START_SECONDS = 120.0
_TERM_SECONDS = 15.0

_WORKSPACE = """\
load_from:
  - grpc_server:
      host: 127.0.0.1
      port: {port}
      location_name: cronless_dagster
"""


class DagsterStack:
    """Dagster on loopback, each process in a session of its own, so that Ctrl-C reaches only the demo itself.

    Use as a context manager: leaving it ends all processes, the runs included. Should the demo be killed, each
    process's guard ends it.
    """

    def __init__(
        self, home: Path, environment: Mapping[str, str], *, instance_config: Path, port: int
    ) -> None:
        """Prepare.

        Args:
            home: Becomes DAGSTER_HOME; logs of the processes lie beside.
            environment: Added to ours.
            instance_config: The `dagster.yaml` to use.
            port: Of the web server; 0 for any free one.
        """
        self.home = home
        self.logs = home / "logs"
        self._config = instance_config
        self._environment = {**os.environ, **environment, "DAGSTER_HOME": str(home), "PYTHONUNBUFFERED": "1"}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._alive, self._held = os.pipe()
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
        self.logs.mkdir(exist_ok=True)
        try:
            (self.home / "dagster.yaml").write_text(
                self._config.read_text(encoding="utf-8"), encoding="utf-8"
            )
        except FileNotFoundError as error:
            raise DemoError(f"{self._config} is missing: run the demo from a clone of the project") from error
        workspace = self.home / "workspace.yaml"
        workspace.write_text(_WORKSPACE.format(port=self._code_port), encoding="utf-8")
        try:
            self._start_code_server()
            self._wait(f"127.0.0.1:{self._code_port}", lambda: not _is_free(self._code_port))
            self._start("dagster-daemon", "dagster-daemon", "run", "-w", str(workspace))
            self._start(
                "dagster-webserver",
                "dagster-webserver",
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
                "-w",
                str(workspace),
            )
            self._wait(self.address, self._answers)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End everything."""
        self.stop()

    def check(self) -> None:
        """Restart a code server that ended, as a supervisor would. Raises DemoError where another one ended."""
        for name, process in self._processes.items():
            if process.poll() is None:
                continue
            if name == "code-server":
                self._start_code_server()
                return
            raise DemoError(f"{name} ended with status {process.returncode}: {self._last_words(name)}")

    def stop(self) -> None:
        """End all processes: the daemon first, so that it launches nothing more."""
        names = ("dagster-daemon", "dagster-webserver", "code-server")
        groups = [self._processes[name].pid for name in names if name in self._processes]
        for group in groups:
            _signal_group(group, signal.SIGTERM)
        deadline = time.monotonic() + _TERM_SECONDS
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(deadline - time.monotonic(), 0.1))
        for group in groups:
            # Whoever is left of a group, such as a run in the middle of a job.
            _signal_group(group, signal.SIGKILL)
        for process in self._processes.values():
            process.wait(timeout=10)
        self._processes.clear()

    def _start_code_server(self) -> None:
        self._start(
            "code-server",
            "dagster", "api", "grpc", "--host", "127.0.0.1", "--port", str(self._code_port),
            "--module-name", "cronless_dagster.definitions", "--location-name", "cronless_dagster",
        )  # fmt: skip

    def _start(self, name: str, program: str, *arguments: str) -> None:
        command = [str(Path(sys.executable).parent / program), *arguments]
        with (self.logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 - our own commands
                [sys.executable, "-P", guarded.__file__, str(self._alive), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                pass_fds=[self._alive],
            )

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise DemoError(
                        f"{name} ended with status {process.returncode}: {self._last_words(name)}"
                    )
            if time.monotonic() > deadline:
                raise DemoError(f"{what} did not answer within {START_SECONDS:g} s: look into {self.logs}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/server_info", timeout=2) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _last_words(self, name: str) -> str:
        path = self.logs / f"{name}.log"
        lines = [
            line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
        ]
        return f"{lines[-1].strip() if lines else 'it said nothing'} (more in {path})"


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
