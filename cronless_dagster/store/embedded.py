"""An embedded PostgreSQL: a real server with nothing to install, for the demo, the tests and a laptop.

Any number of processes may hold the same server, each through an ``EmbeddedPostgres`` of its own on the same
directory; the first starts it, the last to leave stops it. Holding is a shared lock on a file, which the
kernel drops with the process: a holder that is killed leaves nothing behind, because a guard process waits
for the lock and stops the server then (see ``postmaster.py``). Server and guard live in sessions of their
own, so Ctrl-C in the terminal reaches neither; it reaches us, and we stop them.

Linux and macOS only. The server listens on a unix socket, in a directory that only its owner may enter, and
on no network address.
"""

from __future__ import annotations

import fcntl
import logging
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from cronless_dagster.store import postmaster
from cronless_dagster.store.postgres_files import (
    Account,
    EmbeddedPostgresError,
    open_the_way,
    programs,
    server_account,
    socket_directory,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from io import TextIOWrapper

SERVER_OPTIONS: Mapping[str, str] = {
    "listen_addresses": "",
    "port": "5432",  # a PGPORT in the environment must not rename the socket
    "unix_socket_permissions": "0700",
    "max_connections": "200",  # Dagster's daemon, code server, web server and each run hold some
    "timezone": "UTC",
    "log_timezone": "UTC",
}
INITDB_OPTIONS = (
    "--username=postgres",
    "--auth=trust",  # whoever reaches the socket owns the files
    "--encoding=UTF8",
    "--locale=C",  # the same order of texts on every machine
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
)
START_SECONDS = 120
"""How long a start may take, crash recovery included."""

_DATABASE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_logger = logging.getLogger(__name__)


class EmbeddedPostgres:
    """A hold on the server that keeps its data below one directory.

    Use it as a context manager, or call ``start`` and ``stop``; both may be repeated.

    Args:
        directory: where everything of the server lives: ``data/``, the locks, the log ``postgres.log``. It is
            created when missing; a relative path is resolved once, here.
        options: server settings beside ``SERVER_OPTIONS`` (``{"fsync": "off"}``). They count for whoever
            starts the server; who joins a running one gets it as it is.

    Raises:
        EmbeddedPostgresError: from ``start``, when the server can't be started; the message says what to do.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, options: Mapping[str, str] | None = None
    ) -> None:
        self.directory = Path(directory).expanduser().resolve()
        self.pgdata = self.directory / "data"
        self.log_path = self.directory / "postgres.log"
        self._options = {**SERVER_OPTIONS, **(options or {})}
        self._holders: TextIOWrapper | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Process id of the running server, or None."""
        server = postmaster.find_postmaster(self.pgdata)
        return server.pid if server else None

    def start(self) -> None:
        """Start the server, or join the one that runs, and hold it. Data of an earlier start are kept.

        Raises:
            EmbeddedPostgresError: it can't be started.
        """
        if self._holders is not None:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with self._one_at_a_time():
                holders = (self.directory / "holders.lock").open("a+")
                try:
                    fcntl.flock(holders, fcntl.LOCK_SH)
                    self._holders = holders
                    if not self._wait_until_ready():
                        self._start_server()
                except BaseException:
                    self._release()
                    raise
        except OSError as error:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL in {self.directory} can't be used ({error}): check who owns that"
                " directory and the room on its disk, or choose another one by CRONLESS_HOME."
            ) from error

    def stop(self) -> None:
        """Let go of the server; whoever lets go last stops it, and returns when it is down."""
        if self._holders is None:
            return
        with self._one_at_a_time():
            self._release()

    def url(self, database: str = "cronless") -> str:
        """Address of a database, which is created when missing.

        Args:
            database: lower-case letters, digits and ``_``, at most 63.

        Returns:
            A ``postgresql://`` URL that libpq, SQLAlchemy and Dagster's storage read alike.

        Raises:
            EmbeddedPostgresError: the server isn't held, or the name is no plain identifier.
        """
        server = postmaster.find_postmaster(self.pgdata) if self._holders else None
        if server is None:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL in {self.directory} is not running: call start() first, and look"
                f" into {self.log_path} if it has stopped."
            )
        if not _DATABASE_NAME.fullmatch(database):
            raise EmbeddedPostgresError(
                f"{database!r} can't be the name of a database here: use lower-case letters, digits and '_',"
                " at most 63 of them."
            )
        base, query = "postgresql://postgres:@", f"host={quote(str(server.socket_dir))}&port=5432"
        _create_database(f"{base}/postgres?{query}", database)
        return f"{base}/{database}?{query}"

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        with (self.directory / "start.lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _wait_until_ready(self) -> bool:
        """Tell whether a server runs on the data; one that is still starting up is waited for."""
        deadline = time.monotonic() + START_SECONDS
        while (server := postmaster.find_postmaster(self.pgdata)) is not None:
            if server.ready:
                return True
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"PostgreSQL (process {server.pid}) has not become ready within {START_SECONDS} s: look"
                    f" into {self.log_path}."
                )
            time.sleep(0.05)
        return False

    def _start_server(self) -> None:
        account = server_account(self.pgdata)
        open_the_way(account, self.pgdata, programs())
        if not (self.pgdata / "PG_VERSION").is_file():
            self._create_data(account)
        socket_dir = socket_directory(self.pgdata, account)
        if not postmaster.clear_stale_locks(self.pgdata, socket_dir):
            raise EmbeddedPostgresError(
                f"Processes of a killed PostgreSQL still work on {self.pgdata}: end them, then start again."
            )
        settings = {**self._options, "unix_socket_directories": str(socket_dir)}
        arguments = " ".join(
            shlex.quote(part) for key, value in settings.items() for part in ("-c", f"{key}={value}")
        )
        self.log_path.touch(mode=0o640)
        _give(self.log_path, account)
        try:
            account.run(
                str(programs() / "pg_ctl"), "start", "--wait", f"--timeout={START_SECONDS}", "--silent",
                f"--pgdata={self.pgdata}", f"--log={self.log_path}", f"--options={arguments}",
                cwd=self.pgdata,
            )  # fmt: skip
        except subprocess.SubprocessError as error:
            raise EmbeddedPostgresError(
                f"PostgreSQL could not be started on {self.pgdata}: {_last_line(self.log_path)} (more in"
                f" {self.log_path})."
            ) from error
        self._start_guard()

    def _create_data(self, account: Account) -> None:
        """Make the data directory under another name first: one half made by a killed start is never used."""
        unfinished = self.directory / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        _give(unfinished, account)
        _logger.info("creating a PostgreSQL in %s", self.directory)
        try:
            account.run(str(programs() / "initdb"), *INITDB_OPTIONS, f"--pgdata={unfinished}", cwd=unfinished)
        except subprocess.CalledProcessError as error:
            raise EmbeddedPostgresError(
                f"PostgreSQL could not create its files in {unfinished}: {str(error.output).strip()[-500:]}."
            ) from error
        unfinished.rename(self.pgdata)

    def _start_guard(self) -> None:
        self._guard = subprocess.Popen(  # noqa: S603  # our own script
            [
                sys.executable,
                "-P",
                postmaster.__file__,
                str(self.directory / "holders.lock"),
                str(self.pgdata),
            ],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _release(self) -> None:
        """Drop our hold. With nobody left, stop the server here: the caller may want its files next."""
        holders, self._holders = self._holders, None
        if holders is None:
            return
        with holders:
            fcntl.flock(holders, fcntl.LOCK_UN)
            while not _try_lock(holders, fcntl.LOCK_EX):
                # Either others hold the server, and a shared lock is to be had, or the guard is stopping it.
                if _try_lock(holders, fcntl.LOCK_SH):
                    return
                time.sleep(0.02)
            postmaster.stop_postmaster(self.pgdata)
        if self._guard is not None:
            # It sees the lock free and goes; on a starved machine it may do so after us.
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(timeout=30)
            self._guard = None


def _try_lock(file: TextIOWrapper, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _give(path: Path, account: Account) -> None:
    if path.stat().st_uid != account.uid:
        shutil.chown(path, account.uid, account.gid)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return next(
        (line for line in reversed(lines) if "FATAL" in line or "ERROR" in line), "no reason was logged"
    )


def _create_database(admin_url: str, name: str) -> None:
    import psycopg

    try:
        with psycopg.connect(admin_url, autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
            if not found:
                connection.execute(f'CREATE DATABASE "{name}"'.encode())
    except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
        pass  # another process was quicker
    except psycopg.Error as error:
        raise EmbeddedPostgresError(
            f"The database {name!r} could not be created ({str(error).strip()}): look into PostgreSQL's log."
        ) from error
