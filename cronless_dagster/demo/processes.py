"""Processes that belong to the demo: started, watched and ended together, however the demo itself ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cronless_dagster.demo import guarded
from cronless_dagster.demo.load import DemoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

START_SECONDS = 120.0
_TERM_SECONDS = 15.0
# One that ends sooner than this after its start would only end again.
_SOON_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Started:
    process: subprocess.Popen[bytes]
    command: tuple[str, ...]
    restart: bool
    at: float


class Processes:
    """Each is in a session of its own, so that Ctrl-C reaches only the demo, and has a log of its own.

    Use as a context manager: leaving it ends all of them, with all that they started. Should the demo be killed,
    each one's guard ends it.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        """Prepare; the logs go to files below `logs`, and `environment` is added to ours."""
        self.logs = logs
        self._environment = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
        self._started: dict[str, _Started] = {}
        self._alive, self._held = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, program: str, *arguments: str, restart: bool = False) -> None:
        """Start a program of this Python's environment.

        Args:
            name: Its log is called so.
            program: Its file's name, such as "dagster".
            arguments: What the program is given.
            restart: `news` starts it again where it has ended, as a supervisor would.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        command = (str(Path(sys.executable).parent / program), *arguments)
        self._started[name] = self._run(name, command, restart=restart)

    def news(self) -> Iterator[str]:
        """Start again what may be; yield a line for each.

        Raises:
            DemoError: Another one ended, or one that was started just now.
        """
        for name, one in list(self._started.items()):
            if one.process.poll() is None:
                continue
            if not one.restart or time.monotonic() - one.at < _SOON_SECONDS:
                raise self._ended(name)
            self._started[name] = self._run(name, one.command, restart=True)
            yield f"{name} had ended and was started again"

    def wait_for(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait until `ready` says so.

        Raises:
            DemoError: A process ended, or it took longer than `START_SECONDS`.
        """
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            for name, one in self._started.items():
                if one.process.poll() is not None:
                    raise self._ended(name)
            if time.monotonic() > deadline:
                raise DemoError(f"{what} did not answer within {START_SECONDS:g} s: look into {self.logs}")
            time.sleep(0.2)

    def stop(self) -> None:
        """End all, those that were started last first."""
        processes = [one.process for one in reversed(self._started.values())]
        for process in processes:
            _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _TERM_SECONDS
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(deadline - time.monotonic(), 0.1))
        for process in processes:
            # Whoever is left of a group, such as a run in the middle of a job.
            _signal_group(process.pid, signal.SIGKILL)
        for process in processes:
            process.wait(timeout=10)
        self._started.clear()

    def _run(self, name: str, command: tuple[str, ...], *, restart: bool) -> _Started:
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own commands
                [sys.executable, "-P", guarded.__file__, str(self._alive), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                pass_fds=[self._alive],
            )
        return _Started(process, command, restart, time.monotonic())

    def _ended(self, name: str) -> DemoError:
        path = self.logs / f"{name}.log"
        said = [
            line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
        ]
        status = self._started[name].process.returncode
        last = said[-1].strip() if said else "it said nothing"
        return DemoError(f"{name} ended with status {status}: {last} (more in {path})")


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
