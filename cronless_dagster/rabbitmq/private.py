"""A RabbitMQ broker of one's own, on loopback, for tests and the demo: any user, nothing of the system's touched.

It needs RabbitMQ to be installed and nothing else: files, ports, port mapper and Erlang's cookie are its own.
Whoever uses it holds a lock in its directory; a *keeper* process (``keeper.py``) runs the server and ends it
when nobody does, so no process outlives its holders, however they died.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from cronless_dagster.rabbitmq import keeper
from cronless_dagster.rabbitmq.errors import BrokerError
from cronless_dagster.rabbitmq.private_files import MEMORY, NODE, BrokerFiles, Ports, programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import TextIOWrapper

__all__ = ["MEMORY", "PrivateBroker", "programs"]

START_SECONDS = 90.0
"""How long a start may take: some 7 s on a quiet machine, half a minute on a busy one."""

_STARTED = "Server startup complete"
_STOP_SECONDS = keeper.STOP_SECONDS + 30.0
_CONTROL_SECONDS = 60.0
_PORT_ATTEMPTS = 3


class PrivateBroker:
    """A broker that keeps everything below one directory; use it as a context manager.

    Several processes may hold the same one: the first to come starts it, the last to leave ends it. Queues and
    their durable messages survive ``stop`` and ``kill``, and ``start`` brings them back at the same address.

    Args:
        directory: where its files, its log ``broker.log`` included, live; created when missing.
        config: further lines for ``rabbitmq.conf``; they win over ours. They count for whoever starts it.

    Raises:
        BrokerMissing: on entering, when RabbitMQ isn't installed.
        BrokerError: on entering, when it can't be started.
    """

    def __init__(self, directory: Path, *, config: str = "") -> None:
        self.directory = Path(directory).absolute()
        self._files = BrokerFiles(self.directory)
        self._config = config
        self._holders: TextIOWrapper | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()

    @property
    def log_path(self) -> Path:
        """What the server of the latest start said."""
        return self._files.log

    @property
    def url(self) -> str:
        """The AMQP address, with the user and password that RabbitMQ gives to loopback only.

        Raises:
            BrokerError: it was never started.
        """
        ports = self._files.read_ports()
        if ports is None:
            raise BrokerError(f"The broker in {self.directory} has no address yet: start it first.")
        return f"amqp://guest:guest@127.0.0.1:{ports.amqp}/%2F"

    @property
    def pid(self) -> int | None:
        """Process id of the running server, or None."""
        if self._find_keeper() is None:
            return None
        try:
            pid = int((self.directory / keeper.PID_NAME).read_text(encoding="ascii"))
            return pid if _lives(psutil.Process(pid)) else None
        except (FileNotFoundError, ValueError, psutil.Error):
            return None

    def start(self) -> None:
        """Start the server, or join the one that runs, and hold it; returns when it takes connections.

        Raises:
            BrokerMissing: RabbitMQ isn't installed.
            BrokerError: it can't be started; the message holds what it said last.
        """
        scripts, epmd = programs()
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._one_at_a_time():
            if self._holders is None:
                self._holders = self._files.holders.open("a+")
            # Waits while a keeper that was let go of is still ending its server.
            fcntl.flock(self._holders, fcntl.LOCK_SH)
            if self._find_keeper() is None:
                self._start_server(scripts, epmd)
            else:
                # Whoever started it may have died before it was ready.
                self._wait_until_started()

    def stop(self) -> None:
        """Stop the server in order, whoever holds it, and return when none of its processes is left."""
        if (running := self._find_keeper()) is not None:
            with suppress(psutil.NoSuchProcess):
                running.terminate()
            self._wait_for_end(running)

    def kill(self) -> None:
        """Kill the server by SIGKILL, and return when none of its processes is left."""
        running, pid = self._find_keeper(), self.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if running is not None:
            self._wait_for_end(running)

    def control(self, *arguments: str) -> str:
        """Run ``rabbitmqctl`` on the server, which takes a second or two, and return what it printed.

        Raises:
            BrokerError: it failed, or did not answer within a minute.
        """
        scripts, _ = programs()
        command = [str(scripts / "rabbitmqctl"), "--quiet", "--node", NODE, *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - RabbitMQ's own program, no shell
                command, env=self._files.environment(), cwd=self.directory, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, check=True, timeout=_CONTROL_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BrokerError(
                f"rabbitmqctl {arguments[0]} did not end within {_CONTROL_SECONDS:g} s: look into {self.log_path}."
            ) from None
        except subprocess.CalledProcessError as error:
            said = " ".join((error.stderr or error.stdout).split())[-500:]
            raise BrokerError(f"rabbitmqctl {arguments[0]} failed: {said}") from error
        return done.stdout

    def _start_server(self, scripts: Path, epmd: str) -> None:
        known = self._files.read_ports()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            # An address once given out stays: clients are to find the server again after a restart.
            ports = known or Ports.choose()
            self._files.write(ports, self._config)
            (self.directory / keeper.PID_NAME).unlink(missing_ok=True)
            self._start_keeper(scripts, epmd, ports)
            try:
                self._wait_until_started()
            except BrokerError:
                self.stop()
                if known is None:
                    self._files.ports.unlink()
                if attempt == _PORT_ATTEMPTS or ports.are_free():
                    raise
            else:
                return

    def _start_keeper(self, scripts: Path, epmd: str, ports: Ports) -> None:
        command = [sys.executable, "-P", keeper.__file__, str(self._files.holders)]
        command += [str(ports.mapper), epmd, str(scripts / "rabbitmq-server")]
        with self.log_path.open("ab") as log:
            self._keeper = subprocess.Popen(  # noqa: S603 - our own script
                command, env=self._files.environment(), cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        self._files.keeper_pid.write_text(str(self._keeper.pid), encoding="ascii")

    def _wait_until_started(self) -> None:
        """Wait for the server's own word: a port that answers might be somebody else's."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            ended = self._find_keeper() is None
            said = self.log_path.read_text(encoding="utf-8", errors="replace")
            if _STARTED in said:
                return
            if ended or time.monotonic() > deadline:
                problem = "ended" if ended else f"was not ready within {START_SECONDS:g} s"
                raise BrokerError(
                    f"The broker in {self.directory} {problem}: {_reason(said)} (more in {self.log_path})."
                )
            time.sleep(0.05)

    def _find_keeper(self) -> psutil.Process | None:
        """Find the keeper that works on our directory; its number alone may by now be somebody else's."""
        if self._keeper is not None and self._keeper.poll() is not None:
            self._keeper = None
        try:
            found = psutil.Process(int(self._files.keeper_pid.read_text(encoding="ascii")))
            # For a moment after its start a process has no arguments to be known by; our own child needs none.
            ours = self._keeper is not None and self._keeper.pid == found.pid
            if ours or (str(self._files.holders) in found.cmdline() and _lives(found)):
                return found
        except (FileNotFoundError, ValueError, psutil.Error):
            pass
        return None

    def _wait_for_end(self, running: psutil.Process) -> None:
        deadline = time.monotonic() + _STOP_SECONDS
        while self._find_keeper() is not None:
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"The broker's keeper (process {running.pid}) has not ended within {_STOP_SECONDS:g} s: end"
                    f" it by hand and look into {self.log_path}."
                )
            time.sleep(0.02)

    def _let_go(self) -> None:
        """Drop our hold; with nobody left, end the server here: the caller may remove its files next."""
        if self._holders is None:
            return
        with self._one_at_a_time(), self._holders as holders:
            self._holders = None
            while not _try_lock(holders, fcntl.LOCK_EX):
                # Either others hold the server, or the keeper has just found it free and is ending it.
                if _try_lock(holders, fcntl.LOCK_SH):
                    return
                time.sleep(0.02)
            self.stop()

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        with self._files.start.open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _lives(process: psutil.Process) -> bool:
    return bool(process.status() != psutil.STATUS_ZOMBIE)


def _reason(said: str) -> str:
    errors = re.findall(r"\[error\] <[\d.]+> +(?!BOOT FAILED)(.*\w.*)", said)
    last = said.strip().rpartition("\n")[2] or "it said nothing"
    return (errors[0] if errors else last)[:300]


def _try_lock(file: TextIOWrapper, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
