"""Running the command line in this process: ``run("list", "--json")`` against a fresh database."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from cronless_dagster.cli.app import cli

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cronless_dagster.rabbitmq.address import Broker

JOB_TYPES = "tests.cli.declared"
QUEUED_TYPES = "tests.cli.queued"


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit status and what it printed."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Return the one line of JSON that it printed."""
        assert self.stdout.count("\n") == 1, self.stdout
        return json.loads(self.stdout)

    def refused(self, status: int = 2) -> str:
        """Return the one sentence of a refusal for people, and check that it is nothing but that."""
        assert (self.status, self.stdout) == (status, ""), self
        assert self.stderr.startswith("Error: "), self
        assert self.stderr.count("\n") == 1, self
        assert "Traceback" not in self.stderr, self
        return self.stderr.removeprefix("Error: ").rstrip()


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Take away every setting, so that neither ours nor a demo's data are met."""
    for name in os.environ:
        if name.startswith("CRONLESS_") and not name.startswith("CRONLESS_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CRONLESS_HOME", str(tmp_path / "home"))


@pytest.fixture
def run_anywhere(clean_environment: None) -> Iterator[Callable[..., Ran]]:
    """Run the command line without a database; what it did to logging is undone."""
    ours = logging.getLogger("cronless_dagster")
    before = (ours.propagate, list(ours.handlers))

    def run(*arguments: str, stdin: str | bytes | None = None) -> Ran:
        # Anything but an exit is a fault of ours, and fails the test with its traceback.
        result = CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)
        return Ran(result.exit_code, result.stdout, result.stderr)

    yield run
    ours.propagate, ours.handlers[:] = before


@pytest.fixture
def run(run_anywhere: Callable[..., Ran], pg_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run the command line on a fresh migrated database, with the job types `digest` and `refresh`."""
    monkeypatch.setenv("CRONLESS_DATABASE_URL", pg_url)
    monkeypatch.setenv("CRONLESS_JOB_TYPES", JOB_TYPES)
    return run_anywhere


@pytest.fixture
def queued(run: Callable[..., Ran], broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Let commands have a broker, and the job types `digest` (run route) and `mail` (queue route)."""
    monkeypatch.setenv("CRONLESS_JOB_TYPES", QUEUED_TYPES)
    monkeypatch.setenv("CRONLESS_BROKER_URL", broker.url)
    monkeypatch.setenv("CRONLESS_BROKER_PREFIX", broker.prefix)
    return broker


@pytest.fixture
def add(run: Callable[..., Ran]) -> Callable[..., str]:
    """Add a job by the command line and return its id: ``add(name="daily", schedule="@daily")``."""

    def added(
        *arguments: str,
        tenant: str = "acme",
        job_type: str = "digest",
        schedule: str = "0 9 * * *",
        name: str = "",
    ) -> str:
        options = ("--tenant", tenant, "--type", job_type, "--schedule", schedule, "--name", name)
        ran = run("add", *options, *arguments, "--json")
        assert ran.status == 0, ran
        return str(ran.json["job"]["id"])

    return added
