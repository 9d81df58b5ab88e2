"""The database resource: where it finds its address, and what it says when there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import pytest

from cronless_dagster.resources.database import CronlessResource
from cronless_dagster.settings import SettingsError
from cronless_dagster.store.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from pathlib import Path

URL = "postgresql://somebody@nowhere/jobs"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of whoever runs the tests is not the tests' affair."""
    monkeypatch.delenv("CRONLESS_DATABASE_URL", raising=False)
    monkeypatch.delenv("CRONLESS_DATABASE_URL_FILE", raising=False)


def test_a_given_address_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the definitions say beats the environment."""
    monkeypatch.setenv("CRONLESS_DATABASE_URL", "postgresql://other@nowhere/other")
    engine = CronlessResource(database_url=URL).engine()
    assert engine.url.username == "somebody"
    assert engine.url.drivername == "postgresql+psycopg"


def test_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address the environment's is taken, read when it is needed."""
    resource = CronlessResource()
    monkeypatch.setenv("CRONLESS_DATABASE_URL", URL)
    assert resource.engine().url.username == "somebody"


def test_a_secret_in_a_file_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Secrets are often mounted as files."""
    (tmp_path / "url").write_text(f"{URL}\n", encoding="utf-8")
    monkeypatch.setenv("CRONLESS_DATABASE_URL_FILE", str(tmp_path / "url"))
    assert CronlessResource().engine().url.username == "somebody"


def test_an_env_var_is_resolved_by_dagster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster's own way of naming a variable works too, and keeps the address out of the UI."""
    monkeypatch.setenv("JOBS_DATABASE", URL)
    resource = CronlessResource(database_url=dg.EnvVar("JOBS_DATABASE"))
    assert resource.process_config_and_initialize().engine().url.username == "somebody"


def test_no_address_is_one_clear_sentence() -> None:
    """The message names the variable to set."""
    with pytest.raises(SettingsError, match="CRONLESS_DATABASE_URL is not set: give the address"):
        CronlessResource().engine()


def test_another_database_is_refused() -> None:
    """Only PostgreSQL has what the claim needs."""
    with pytest.raises(DatabaseUnavailable, match="postgresql://"):
        CronlessResource(database_url="sqlite://").engine()


def test_one_engine_serves_a_process() -> None:
    """A sensor's resources are set up at every tick; connections must not be."""
    assert CronlessResource(database_url=URL).engine() is CronlessResource(database_url=URL).engine()
