"""Starting processes in tests so that none outlives its test."""

from __future__ import annotations

import os
import subprocess
import uuid
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from pathlib import Path

OWNER_VARIABLE = "CRONLESS_TEST_OWNER"
"""Names the run, and in a spawned process its spawner too; children inherit it, however they detach."""


class Spawner:
    """Starts processes in sessions of their own, and kills them with everything they started.

    ``spawn(sys.executable, "-m", "module", env={"NAME": "value"}, output=path)`` returns the ``Popen``;
    ``env`` is added to ours, ``output`` collects stdout and stderr.
    """

    def __init__(self) -> None:
        self._owner = f"{os.environ.get(OWNER_VARIABLE, '')}/{uuid.uuid4().hex}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __call__(
        self, *command: str, env: dict[str, str] | None = None, output: Path | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a command; further options are ``subprocess.Popen``'s."""
        if output is not None:
            stream = output.open("ab")
            options |= {"stdout": stream, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(
            command,
            env={**os.environ, **(env or {}), OWNER_VARIABLE: self._owner},
            stdin=options.pop("stdin", subprocess.DEVNULL),
            start_new_session=True,
            **options,
        )
        if output is not None:
            stream.close()
        self._processes.append(process)
        return process

    def alive(self) -> list[psutil.Process]:
        """Return what still runs of all that was started here, directly or not."""
        return _owned(self._owner)

    def kill_all(self) -> None:
        """Kill everything started here, and collect the exit statuses."""
        kill_owned(self._owner)
        for process in self._processes:
            process.wait(timeout=30)


def kill_owned(owner: str) -> None:
    """Kill every process that carries an owner's name in its environment, until none is left."""
    for _ in range(20):
        found = _owned(owner)
        if not found:
            return
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(found, timeout=0.5)


def _owned(owner: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.pid != os.getpid()
                and process.status() != psutil.STATUS_ZOMBIE
                and process.environ().get(OWNER_VARIABLE, "").startswith(owner)
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found
