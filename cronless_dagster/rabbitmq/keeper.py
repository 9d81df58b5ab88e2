"""The parent of a private broker: runs it until it is told to stop, or until nobody holds it any more.

``keeper.py HOLDERS_LOCK EPMD_PORT EPMD SERVER`` starts Erlang's port mapper and the server as its children. It
ends both on SIGTERM, when the server ends by itself, and when nobody holds the lock: the kernel drops a lock
with its process, so a holder that was killed counts as gone. Standard library only, so that it starts quickly.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PID_NAME = "server.pid"
"""File beside the lock with the server's process id; it is right as long as the keeper lives."""

STOP_SECONDS = 30.0
"""How long a server may take to stop in order, before it is killed."""

_LOOK_SECONDS = 0.1
_AGAIN_SECONDS = 1.0
_EPMD_SECONDS = 20.0


def main(argv: list[str]) -> int:
    """Run the broker; returns 0 when it was stopped or let go, 1 when it could not be run or ended by itself."""
    lock, epmd_port, epmd, server = Path(argv[0]), int(argv[1]), argv[2], argv[3]
    stopped: list[int] = []
    # Noted only: raised in the middle of a start, it could lose a child.
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    children: list[subprocess.Popen[bytes]] = []
    # Once found free the lock stays ours until all is over: who comes then waits, and starts a new server.
    with lock.open("r+") as holders:
        try:
            mapper = _start(children, epmd, "-address", "127.0.0.1", "-port", str(epmd_port))
            _wait_for_mapper(mapper, epmd_port)
            # Its script puts the server itself in its place, so this is the server's own process id.
            process = _start(children, server)
            (lock.parent / PID_NAME).write_text(str(process.pid), encoding="ascii")
            while process.poll() is None and mapper.poll() is None:
                if stopped or _is_free(holders.fileno()):
                    return 0
                time.sleep(_LOOK_SECONDS)
        except OSError as error:
            print(f"The broker could not be run: {error}", file=sys.stderr, flush=True)  # noqa: T201 - its log
        finally:
            for child in reversed(children):
                _end(child)
    return 1


def _start(children: list[subprocess.Popen[bytes]], *command: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - ours
    children.append(child)
    return child


def _wait_for_mapper(mapper: subprocess.Popen[bytes], port: int) -> None:
    """Wait until it answers: the server would start one of its own, which outlives it.

    Source: https://www.erlang.org/doc/apps/erts/erl_dist_protocol#epmd-protocol
    """
    deadline = time.monotonic() + _EPMD_SECONDS
    while mapper.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                probe.sendall(b"\0\1n")  # asks for the names it knows; a connection without a word is logged
                return
        time.sleep(0.02)
    raise OSError(f"epmd does not answer on port {port}")


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child in order, one that a test has frozen too, and with it whatever it started."""
    deadline = time.monotonic() + STOP_SECONDS
    while child.poll() is None:
        # Erlang drops a signal that comes before it listens to them, hence again and again.
        number = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_AGAIN_SECONDS)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
