"""The embedded PostgreSQL: started once, held by many, left by all, and never left behind."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest
from sqlalchemy import create_engine

from cronless_dagster.store import postgres_files, postmaster
from cronless_dagster.store.embedded import EmbeddedPostgres, EmbeddedPostgresError
from cronless_dagster.store.postgres_files import SOCKET_PATH_BYTES, Account

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes import Spawner

pytestmark = [pytest.mark.postgres, pytest.mark.xdist_group("embedded")]

FAST = {"fsync": "off"}
HOLD = """
import sys, time
from cronless_dagster.store.embedded import EmbeddedPostgres
with EmbeddedPostgres(sys.argv[1], options={"fsync": "off"}) as server:
    print(server.url(), flush=True)
    sys.stdin.read()
"""


def _eventually(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something another process does; the limit is a guard against a hang."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.02)


def _processes_of(directory: Path) -> list[psutil.Process]:
    """All that works for the server of a directory, its guard included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(directory) in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _query(url: str, statement: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return row[0]


@pytest.fixture
def directory(server_directory: Path) -> Path:
    """A directory that the server itself has to make."""
    return server_directory / "pg"


@pytest.fixture
def hold(spawn: Spawner, directory: Path) -> Callable[[], subprocess.Popen[bytes]]:
    """Start another process that holds the server until its standard input is closed."""

    def start() -> subprocess.Popen[bytes]:
        process = spawn(
            sys.executable, "-c", HOLD, str(directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"postgresql://")
        return process

    return start


def _leave(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=60) == 0


def test_data_outlive_a_stop(directory: Path) -> None:
    """A second start goes on with the same data, and nothing runs in between or afterwards."""
    with EmbeddedPostgres(directory, options=FAST) as server:
        with psycopg.connect(server.url()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        first = server.pid
    assert server.pid is None
    assert not _processes_of(directory)
    with server:
        assert server.pid not in (None, first)
        assert _query(server.url(), "SELECT answer FROM kept") == 42
    assert not _processes_of(directory)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_every_driver_reads_the_address(postgres_server: EmbeddedPostgres, driver: str) -> None:
    """Our store takes psycopg 3, Dagster's storage psycopg2, both by the same URL."""
    engine = create_engine(postgres_server.url("other").replace("postgresql:", f"postgresql+{driver}:"))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT current_database()").scalar() == "other"
    engine.dispose()


def test_a_port_in_the_environment_does_not_rename_the_socket(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both PostgreSQL and libpq would obey PGPORT."""
    monkeypatch.setenv("PGPORT", "6543")
    with EmbeddedPostgres(directory, options=FAST) as server:
        assert _query(server.url(), "SELECT 1") == 1
        monkeypatch.delenv("PGPORT")
        assert _query(server.url(), "SELECT 1") == 1


def test_the_server_is_the_same_on_every_machine(postgres_server: EmbeddedPostgres) -> None:
    """Zone, encoding and the order of texts don't follow the environment; no network address is open."""
    url = postgres_server.url("postgres")
    assert _query(url, "SHOW timezone") == "UTC"
    assert _query(url, "SHOW server_encoding") == "UTF8"
    assert _query(url, "SELECT datlocale FROM pg_database WHERE datname = 'postgres'") == "C.UTF-8"
    assert _query(url, "SHOW listen_addresses") == ""
    assert _query(url, "SHOW fsync") == "off"


class TestNames:
    """Databases are created when first asked for."""

    def test_a_database_is_created_once(self, postgres_server: EmbeddedPostgres) -> None:
        """Asking again gives the same database."""
        assert postgres_server.url("another") == postgres_server.url("another")
        assert _query(postgres_server.url("another"), "SELECT current_database()") == "another"

    @pytest.mark.parametrize("name", ["", "Upper", 'a"; DROP', "a b", "1a", "a" * 64, "a\0", "a\n"])
    def test_a_name_that_is_no_identifier_is_refused(
        self, postgres_server: EmbeddedPostgres, name: str
    ) -> None:
        """No name reaches SQL that could mean anything else there."""
        with pytest.raises(EmbeddedPostgresError, match="name of a database"):
            postgres_server.url(name)

    def test_without_a_server_there_is_no_address(self, directory: Path) -> None:
        """The message says what to call, instead of a connection error later."""
        with pytest.raises(EmbeddedPostgresError, match=r"start\(\)"):
            EmbeddedPostgres(directory).url()


@pytest.mark.crash
class TestHolders:
    """The first starts the server, the last stops it, and the dead don't count."""

    def test_the_last_to_leave_stops_the_server(
        self, directory: Path, hold: Callable[[], subprocess.Popen[bytes]]
    ) -> None:
        """Whoever started it may leave first."""
        first = hold()
        with EmbeddedPostgres(directory) as server:
            pid = server.pid
            second = hold()
            _leave(first)
            assert server.pid == pid
            assert _query(server.url(), "SELECT 1") == 1
        assert server.pid == pid
        _leave(second)
        assert server.pid is None
        _eventually(lambda: not _processes_of(directory))

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_a_killed_holder_leaves_nothing_behind(
        self, directory: Path, hold: Callable[[], subprocess.Popen[bytes]], number: signal.Signals
    ) -> None:
        """Nobody is left to stop the server, so its guard does."""
        holder = hold()
        assert EmbeddedPostgres(directory).pid is not None
        holder.send_signal(number)
        holder.wait(timeout=60)
        _eventually(lambda: not _processes_of(directory))

    def test_a_killed_holder_takes_nothing_from_the_others(
        self, directory: Path, hold: Callable[[], subprocess.Popen[bytes]]
    ) -> None:
        """The guard of the one who started the server waits for all of them."""
        first, second = hold(), hold()
        first.kill()
        first.wait(timeout=60)
        with EmbeddedPostgres(directory) as server:
            assert _query(server.url(), "SELECT 1") == 1
            _leave(second)
            assert _query(server.url(), "SELECT 1") == 1
        assert server.pid is None
        _eventually(lambda: not _processes_of(directory))

    def test_an_interrupt_of_the_whole_terminal_stops_it_in_order(
        self, directory: Path, hold: Callable[[], subprocess.Popen[bytes]]
    ) -> None:
        """Ctrl-C goes to the whole process group: the server is out of it, and is shut down by its holder."""
        holder = hold()
        os.killpg(holder.pid, signal.SIGINT)
        holder.wait(timeout=60)
        _eventually(lambda: not _processes_of(directory))
        log = EmbeddedPostgres(directory).log_path.read_text()
        assert log.rstrip().endswith("database system is shut down")
        assert "interrupted" not in log

    def test_many_who_start_at_once_get_one_server(self, directory: Path, spawn: Spawner) -> None:
        """One creates the data and starts it, the others wait and join."""
        processes = [
            spawn(sys.executable, "-c", HOLD, str(directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(4)
        ]
        urls = {process.stdout.readline() for process in processes if process.stdout}
        assert len(urls) == 1
        for process in processes:
            _leave(process)
        assert EmbeddedPostgres(directory).pid is None
        _eventually(lambda: not _processes_of(directory))

    def test_a_killed_server_is_started_again(self, directory: Path) -> None:
        """What was committed is there after the crash; the stale pid file stops nobody."""
        server = EmbeddedPostgres(directory, options=FAST)
        with server:
            with psycopg.connect(server.url()) as connection:
                connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
            pid = server.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            _eventually(lambda: server.pid is None)
            with pytest.raises(EmbeddedPostgresError, match="not running"):
                server.url()
        _eventually(lambda: not _processes_of(directory))
        with server:
            assert _query(server.url(), "SELECT answer FROM kept") == 42

    def test_a_backend_that_outlives_its_server_keeps_the_locks(self, directory: Path) -> None:
        """Two servers on the same data would destroy them: the stale locks stay while anybody still works."""
        with EmbeddedPostgres(directory, options=FAST) as server:
            connection = psycopg.connect(server.url())
            backend, pid = psutil.Process(connection.info.backend_pid), server.pid
            assert pid is not None
            backend.suspend()
            os.kill(pid, signal.SIGKILL)
            _eventually(lambda: server.pid is None)
            assert not postmaster.clear_stale_locks(server.pgdata, server.pgdata, seconds=0.2)
            assert (server.pgdata / "postmaster.pid").exists()
            backend.kill()
            assert postmaster.clear_stale_locks(server.pgdata, server.pgdata)
            assert not (server.pgdata / "postmaster.pid").exists()
            connection.close()

    def test_a_creation_that_was_killed_is_done_again(self, directory: Path) -> None:
        """Half a data directory is never taken for a whole one."""
        unfinished = directory / "data.new"
        unfinished.mkdir(parents=True)
        (unfinished / "PG_VERSION").write_text("18\n")
        with EmbeddedPostgres(directory, options=FAST) as server:
            assert _query(server.url(), "SELECT 1") == 1
        assert not unfinished.exists()


class TestPlaces:
    """Paths, owners and permissions that get in the way."""

    def test_a_deep_directory_gets_a_short_socket(self, directory: Path) -> None:
        """A unix socket's path is short, a project's may be long."""
        deep = directory / ("deep" * 20) / "pg"
        assert len(str(deep)) > SOCKET_PATH_BYTES - len("/data/.s.PGSQL.5432")
        with EmbeddedPostgres(deep, options=FAST) as server:
            assert _query(server.url(), "SELECT 1") == 1
            found = postmaster.find_postmaster(server.pgdata)
            assert found is not None
            assert found.socket_dir != server.pgdata
            assert found.socket_dir.stat().st_mode & 0o077 == 0
        assert not found.socket_dir.exists()

    def test_somebody_elses_socket_directory_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The short directory's name can be guessed: one that others can enter isn't used."""
        with tempfile.TemporaryDirectory(prefix="c") as short:
            monkeypatch.setattr("tempfile.tempdir", short)
            deep, me = Path(short) / ("deep" * 30), Account(os.geteuid(), os.getegid())
            made = postgres_files.socket_directory(deep, me)
            assert made.parent == Path(short)
            made.chmod(0o755)
            with pytest.raises(EmbeddedPostgresError, match="not a private directory"):
                postgres_files.socket_directory(deep, me)
            made.rmdir()
            made.symlink_to(short)
            with pytest.raises(EmbeddedPostgresError, match="not a private directory"):
                postgres_files.socket_directory(deep, me)

    def test_a_directory_that_cant_be_made_is_named(self, tmp_path: Path) -> None:
        """The message names the directory and the setting."""
        (tmp_path / "file").touch()
        with pytest.raises(EmbeddedPostgresError, match=r"file/pg.*CRONLESS_HOME"):
            EmbeddedPostgres(tmp_path / "file" / "pg").start()

    def test_a_server_that_does_not_start_says_why(self, directory: Path) -> None:
        """The reason in PostgreSQL's log reaches the message, and nothing stays running."""
        with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
            EmbeddedPostgres(directory, options={"no_such_setting": "1"}).start()
        assert not _processes_of(directory)
        with EmbeddedPostgres(directory, options=FAST) as server:
            assert _query(server.url(), "SELECT 1") == 1

    def test_another_process_with_the_same_number_is_no_server(self, directory: Path) -> None:
        """After a crash of the machine the pid file may name anybody: they are neither joined nor stopped."""
        pgdata = directory / "data"
        pgdata.mkdir(parents=True)
        lines = [str(os.getpid()), str(pgdata), "0", "5432", str(pgdata), "", "0 0", "ready   "]
        (pgdata / "postmaster.pid").write_text("\n".join(lines))
        assert postmaster.find_postmaster(pgdata) is None
        assert not postmaster.stop_postmaster(pgdata)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand the server to another user")
    def test_root_gives_the_server_a_user_of_its_own(self, server_directory: Path) -> None:
        """The parents let that user pass, and nothing more."""
        closed = server_directory / "closed"
        closed.mkdir(mode=0o700)
        with EmbeddedPostgres(closed / "pg", options=FAST) as server:
            assert server.pid is not None
            assert psutil.Process(server.pid).uids().effective == server.pgdata.stat().st_uid != 0
            assert _query(server.url(), "SELECT 1") == 1
        assert closed.stat().st_mode & 0o777 == 0o701
        assert server.pgdata.stat().st_mode & 0o777 == 0o700

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
    def test_root_leaves_a_users_data_with_that_user(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Root may hold an ordinary user's server; it then runs as the owner of the data."""
        nobody = pwd.getpwnam("nobody")
        account = Account(nobody.pw_uid, nobody.pw_gid)
        with monkeypatch.context() as patch:
            patch.setattr("cronless_dagster.store.embedded.server_account", lambda _: account)
            with EmbeddedPostgres(directory, options=FAST) as server:
                assert _query(server.url(), "SELECT 1") == 1
        with server:
            assert server.pid is not None
            assert psutil.Process(server.pid).uids().effective == nobody.pw_uid
            assert _query(server.url(), "SELECT 1") == 1

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root hands PostgreSQL's files to another user")
    def test_a_tight_umask_at_the_installation_is_mended(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server's user gets to read what the owner can; what wasn't executable doesn't become it."""
        bin_directory = tmp_path / "package" / "pginstall18" / "bin"
        libraries = tmp_path / "package.libs"
        bin_directory.mkdir(parents=True)
        libraries.mkdir()
        for path, mode in ((bin_directory / "postgres", 0o700), (libraries / "libpq.so", 0o600)):
            path.touch()
            path.chmod(mode)
        monkeypatch.setattr(postgres_files, "programs", lambda: bin_directory)
        postgres_files.open_the_way(Account(65_534, 65_534), tmp_path / "pg")
        assert (bin_directory / "postgres").stat().st_mode & 0o777 == 0o705
        assert (libraries / "libpq.so").stat().st_mode & 0o777 == 0o604

    def test_data_of_another_user_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An ordinary user can't start a server on another's files, and is told whose they are."""
        monkeypatch.setattr("os.geteuid", lambda: 12_345)
        with pytest.raises(EmbeddedPostgresError, match=rf"user id {tmp_path.stat().st_uid}.*12345"):
            postgres_files.server_account(tmp_path)
