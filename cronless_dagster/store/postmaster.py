"""The postmaster process of an embedded PostgreSQL: which one it is, and how it is stopped.

Run as a script, ``postmaster.py HOLDERS_LOCK PGDATA``, it is the *guard*: it waits until nobody holds the
lock any more and then stops the server. The kernel drops a lock with its process, so a holder that was killed
counts as gone, which a list of process ids on disk can't promise. The script needs nothing but the standard
library and psutil: it must work while the rest of the package is being reinstalled.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

SOCKET_NAME = ".s.PGSQL.5432"
STOP_STEPS = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
"""PostgreSQL's fast shutdown, its immediate one, and the last resort, each with the seconds it is given.

Source: https://www.postgresql.org/docs/18/server-shutdown.html
"""


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A running server: process id, directory of its unix socket, whether it accepts connections."""

    pid: int
    socket_dir: Path
    ready: bool


def find_postmaster(pgdata: Path) -> Postmaster | None:
    """Find the server that runs on a data directory.

    ``postmaster.pid`` survives a crash, and its number may by then belong to somebody else's process: only a
    process that is called postgres and was started on this very directory counts.

    Args:
        pgdata: the resolved data directory.

    Returns:
        The server, or None when none runs.

    Source: https://www.postgresql.org/docs/18/storage-file-layout.html (lines 1, 5 and 8 of postmaster.pid)
    """
    try:
        lines = (pgdata / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        pid = int(lines[0])
        process = psutil.Process(pid)
        if "postgres" not in process.name() or str(pgdata) not in process.cmdline():
            return None
    except (FileNotFoundError, IndexError, ValueError, psutil.Error):
        return None
    socket_dir = Path(lines[4].strip()) if len(lines) > 4 else pgdata
    ready = len(lines) > 7 and lines[7].strip() == "ready"
    return Postmaster(pid=pid, socket_dir=socket_dir, ready=ready)


def stop_postmaster(pgdata: Path) -> bool:
    """Stop the server that runs on a data directory and wait until its process is gone.

    Returns:
        Whether there was one to stop.
    """
    server = find_postmaster(pgdata)
    if server is None:
        return False
    for number, seconds in STOP_STEPS:
        try:
            os.kill(server.pid, number)
        except ProcessLookupError:
            break
        if _wait_until_gone(server.pid, seconds):
            break
    if server.socket_dir != pgdata:
        with suppress(OSError):
            server.socket_dir.rmdir()
    return True


def clear_stale_locks(pgdata: Path, socket_dir: Path, seconds: float = 60.0) -> bool:
    """Remove the lock files that a killed server left, once no process works on its data any more.

    PostgreSQL does so itself if the number in them is nobody's. Where the first process of a container
    collects no dead children, a killed server keeps its number as a zombie, and PostgreSQL would wait for it
    for ever.

    Args:
        pgdata: the resolved data directory, on which no postmaster runs.
        socket_dir: where its socket lives.
        seconds: how long a killed server's last children may take to notice.

    Returns:
        Whether the data are free. If not, nothing was removed: two servers on the same data would destroy
        them.
    """
    deadline = time.monotonic() + seconds
    while _works_on(pgdata):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    for stale in (pgdata / "postmaster.pid", socket_dir / SOCKET_NAME, socket_dir / f"{SOCKET_NAME}.lock"):
        stale.unlink(missing_ok=True)
    return True


def _works_on(pgdata: Path) -> bool:
    """Tell whether any PostgreSQL process is left: all have the data as their working directory."""
    for process in psutil.process_iter(["name"]):
        try:
            if "postgres" in (process.info["name"] or "") and process.cwd() == str(pgdata):
                return True
        except psutil.Error:
            continue
    return False


def _wait_until_gone(pid: int, seconds: float) -> bool:
    """Wait for a process to end; one that its parent hasn't asked for yet (a zombie) has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def main(argv: list[str]) -> int:
    """Wait for the last holder to go, then stop the server."""
    holders_lock, pgdata = Path(argv[0]), Path(argv[1])
    try:
        with holders_lock.open("r+") as holders:
            fcntl.flock(holders, fcntl.LOCK_EX)
            stop_postmaster(pgdata)
    except FileNotFoundError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
