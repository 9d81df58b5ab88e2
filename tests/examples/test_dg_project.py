"""The example project passes `dg`'s own checks, and a broken copy of it is told where it is broken."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import dagster
import pytest

from tests.dagster.support import add_due, outcomes

if TYPE_CHECKING:
    from sqlalchemy import Engine

PROJECT = Path(__file__).parents[2] / "examples" / "dg_project"
YAML = Path("src", "team_schedules", "defs", "schedules", "defs.yaml")

pytestmark = [pytest.mark.dagster, pytest.mark.slow]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Dagster home of the test's own, without telemetry."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))


def dg(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real `dg` in a project."""
    environment = {
        **os.environ,
        "COLUMNS": "200",
        "NO_COLOR": "1",
        "PYTHONPATH": str(project / "src"),
        # `dg check` needs the names alone: nothing is connected to.
        "TEAM_DATABASE_URL": "",
    }
    command = [str(Path(sys.executable).with_name("dg")), *arguments]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    done.stdout = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    return done


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project, to be broken."""
    return shutil.copytree(
        PROJECT, tmp_path / "dg_project", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )


def broken(project: Path, right: str, wrong: str) -> int:
    """Put something else into its `defs.yaml`; return the line."""
    text = (project / YAML).read_text(encoding="utf-8")
    assert text.count(right) == 1
    (project / YAML).write_text(text.replace(right, wrong), encoding="utf-8")
    return text[: text.index(right)].count("\n") + 1


def test_the_component_is_registered() -> None:
    """Although the package loads its names when they are first used."""
    listed = dg(PROJECT, "list", "components")
    assert listed.returncode == 0, listed.stdout
    assert "cronless_dagster.CronlessComponent" in listed.stdout


def test_its_yaml_and_its_definitions_pass() -> None:
    """`dg check defs` loads every module and every Dagster job, and checks the yaml first."""
    checked = dg(PROJECT, "check", "defs")
    assert checked.returncode == 0, checked.stdout
    assert "All component YAML validated successfully." in checked.stdout
    assert "All definitions loaded successfully." in checked.stdout


def test_its_definitions_are_those_that_the_file_declares() -> None:
    """An asset and a Dagster job for each handler; the team's own beside them."""
    listed = dg(PROJECT, "list", "defs", "--json")
    assert listed.returncode == 0, listed.stdout
    for name in (
        "cronless/reminder",
        "cronless/lead_scoring",
        "cronless/ping",
        "tenant_report",
        "schedule_health",
        "cronless_reminder",
        "tenant_report_job",
        "cronless_tick",
    ):
        assert f'"{name}"' in listed.stdout


def test_mistakes_in_the_yaml_are_told_with_their_lines(copy: Path) -> None:
    """Each in the entry that was meant, although an entry may have four forms."""
    told = {
        broken(copy, right, wrong): f"attributes.{said}"
        for right, wrong, said in (
            ("lease: 5m", "leese: 5m", "job_types.0.leese Additional properties are not allowed"),
            ("max_attempts: 5", "max_attempts: many", "job_types.0.retry.max_attempts 'many' does not match"),
            ("takes: batch", "takes: batches", "job_types.1.takes 'batches' is not one of"),
            ("max_runtime: 1h30m", "max_runtime: soon", "job_types.3.max_runtime 'soon' does not match"),
            ("history_days: 30", "history_days: 0", "sensor.history_days 0 is less than the minimum of 1"),
        )
    }
    checked = dg(copy, "check", "yaml")
    assert checked.returncode == 1
    assert checked.stdout.count(f"{YAML}:") == len(told)
    for line, said in told.items():
        assert f"{YAML}:{line} - cronless_dagster.CronlessComponent {said}" in checked.stdout


def test_a_function_that_is_not_there_is_named(copy: Path) -> None:
    """The yaml is right in form; loading it says what it names in vain."""
    broken(copy, "team_schedules.handlers:remind", "team_schedules.handlers:remidn")
    checked = dg(copy, "check", "defs")
    assert checked.returncode == 1
    assert (
        "job_types[0]: module 'team_schedules.handlers' has no 'remidn', which handler"
        " 'team_schedules.handlers:remidn' names: correct it"
    ) in checked.stdout


def test_what_is_due_becomes_runs(
    engine: Engine, pg_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim's run for the handlers, and a run of the team's own Dagster job for the tenant's partition."""
    monkeypatch.syspath_prepend(PROJECT / "src")
    monkeypatch.setenv("TEAM_DATABASE_URL", pg_url)
    monkeypatch.delenv("CRONLESS_BROKER_URL", raising=False)
    definitions = importlib.import_module("team_schedules.definitions").defs()
    add_due(engine, "reminder", 2, payload={"customer": "Jane"})
    add_due(engine, "lead_scoring", 2, payload={"lead": "Jane"})
    add_due(engine, "ping", 2)
    add_due(engine, "tenant_report", 1)
    with dagster.DagsterInstance.local_temp(str(tmp_path)) as instance:
        with dagster.build_sensor_context(
            definitions=definitions, instance=instance, resources=definitions.resources
        ) as context:
            tick = definitions.resolve_sensor_def("cronless_tick").evaluate_tick(context)
        by_job = {request.job_name: request for request in tick.run_requests or []}
        assert set(by_job) == {
            "cronless_reminder",
            "cronless_lead_scoring",
            "cronless_ping",
            "tenant_report_job",
        }
        report = by_job.pop("tenant_report_job")
        assert report.partition_key == "tenant-00006"
        for name, request in by_job.items():
            definitions.resolve_job_def(name).execute_in_process(
                instance=instance, run_config=request.run_config, tags=dict(request.tags)
            )
        instance.add_dynamic_partitions("tenant", [report.partition_key])
        made = definitions.resolve_job_def("tenant_report_job").execute_in_process(
            instance=instance, partition_key=report.partition_key
        )
        [event] = made.get_asset_materialization_events()
        assert event.partition == "tenant-00006"
    assert outcomes(engine) == {"success": 6}
