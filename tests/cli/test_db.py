"""`cronless db`, and which database a command takes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from cronless_dagster.cli.app import COMMANDS
from cronless_dagster.store.database import create_store_engine
from cronless_dagster.store.embedded import EmbeddedPostgres
from cronless_dagster.store.revision import HEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from tests.cli.conftest import Ran


def test_upgrade_is_repeatable(run_anywhere: Callable[..., Ran], empty_pg_url: str) -> None:
    """The first makes the schema, the second finds it; status tells the two apart by its exit status."""
    database = ("--database-url", empty_pg_url)
    assert run_anywhere("db", "status", *database, "--json").json["state"] == "missing"
    assert run_anywhere("db", "status", *database).status == 1
    assert run_anywhere("db", "upgrade", *database, "--json").json == {"before": None, "now": HEAD}
    assert run_anywhere("db", "upgrade", *database).stdout == f"The schema is current (version {HEAD}).\n"
    assert run_anywhere("db", "status", *database).status == 0


def test_the_tables_of_the_ready_made_assets_come_when_asked_for(
    run_anywhere: Callable[..., Ran], empty_pg_url: str
) -> None:
    """Without --assets there is no second schema; with it there is, and a second time changes nothing."""
    database = ("--database-url", empty_pg_url)

    def has_accounts() -> bool:
        made = create_store_engine(empty_pg_url)
        with made.connect() as connection:
            found = connection.scalar(text("SELECT to_regclass('cronless_assets.account')"))
        made.dispose()
        return found is not None

    run_anywhere("db", "upgrade", *database)
    assert not has_accounts()
    for _ in range(2):
        assert run_anywhere("db", "upgrade", "--assets", *database).status == 0
        assert has_accounts()


def test_a_newer_schema_is_named(run: Callable[..., Ran], engine: Engine) -> None:
    """Status says what is there, and what to do."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE cronless.alembic_version SET version_num = '9999'"))
    ran = run("db", "status")
    assert ran.status == 1
    assert "newer" in ran.stdout
    assert "9999" in run("db", "upgrade").refused(1)


def test_prune_drops_days(run: Callable[..., Ran], engine: Engine) -> None:
    """Partitions of days before the limit go, the later ones stay."""
    with engine.begin() as connection:
        connection.execute(text("SELECT cronless.ensure_history_partition(DATE '2020-01-01')"))
    assert run("db", "prune", "--days", "36500", "--json").json["dropped"] == []
    told = run("db", "prune", "--json").json
    assert told == {"kept_days": 30, "dropped": ["job_execution_20200101"]}


def test_the_address_on_the_command_line_wins(
    run: Callable[..., Ran], empty_pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the command and after it alike, and beside a file that names another one."""
    assert run("db", "status").status == 0
    assert run("--database-url", empty_pg_url, "db", "status").status == 1
    assert run("db", "status", "--database-url", empty_pg_url).status == 1
    monkeypatch.delenv("CRONLESS_DATABASE_URL")
    monkeypatch.setenv("CRONLESS_DATABASE_URL_FILE", os.devnull)
    assert run("--database-url", empty_pg_url, "db", "status").status == 1


@pytest.fixture
def home() -> Iterator[Path]:
    """A short directory, as a socket's path has to be, that a server's own user may pass through."""
    with tempfile.TemporaryDirectory(prefix="cronless-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.mark.postgres
@pytest.mark.slow
def test_without_an_address_the_demos_server_is_held_for_the_command(
    run_anywhere: Callable[..., Ran], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started where nobody else holds it, and stopped when the command ends."""
    monkeypatch.setenv("CRONLESS_HOME", str(home))
    assert "no database is named" in run_anywhere("list").refused()
    with EmbeddedPostgres(home / "postgres", options={"fsync": "off"}):
        assert run_anywhere("db", "upgrade").status == 0
    assert run_anywhere("list", "--json").json == {"jobs": [], "next": None}
    assert EmbeddedPostgres(home / "postgres").pid is None


def test_without_a_command_there_is_help(run_anywhere: Callable[..., Ran]) -> None:
    """The commands are listed, and the exit status says that nothing was done."""
    for words, listed in (((), "explain"), (("db",), "upgrade")):
        ran = run_anywhere(*words)
        assert ran.status == 2
        assert ran.stderr.startswith("Usage: cronless")
        assert f"\n  {listed} " in ran.stderr
    ran = run_anywhere("--help")
    assert ran.status == 0
    assert all(f"\n  {name} " in ran.stdout for name in ("explain", "add", "tick", "demo"))
    assert all(len(line) <= 80 for line in ran.stdout.splitlines())


@pytest.mark.parametrize("command", [*COMMANDS, "db upgrade", "db status", "db prune"])
def test_every_command_says_what_it_does(run_anywhere: Callable[..., Ran], command: str) -> None:
    """Its help loads, fits in 80 columns, and needs no database."""
    ran = run_anywhere(*command.split(), "--help")
    assert ran.status == 0
    assert ran.stdout.startswith(f"Usage: cronless {command} ")
    assert all(len(line) <= 80 for line in ran.stdout.splitlines())
