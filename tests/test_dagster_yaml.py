"""The shipped ``dagster.yaml``: Dagster accepts it, and it holds what the tick relies on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagster import DagsterInstance

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.dagster


@pytest.fixture
def instance(tmp_path: Path, empty_pg_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    """A Dagster instance by the shipped file, on a database that has no tables yet."""
    from dagster import DagsterInstance

    shutil.copy(ROOT / "dagster.yaml", tmp_path)
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", empty_pg_url)
    with DagsterInstance.from_config(str(tmp_path)) as made:
        yield made


def test_dagster_keeps_its_tables_in_postgres(instance: DagsterInstance) -> None:
    """Runs, events and schedules all go to the one database."""
    assert instance.get_runs_count() == 0
    for storage in (instance.run_storage, instance.event_log_storage, instance.schedule_storage):
        assert "ostgres" in repr(type(storage)) or "ostgres" in repr(storage)


def test_the_queue_is_quick_and_patient(instance: DagsterInstance) -> None:
    """A run starts soon after its tick, and outlives a restart of the code server."""
    from dagster._core.run_coordinator.queued_run_coordinator import QueuedRunCoordinator

    coordinator = instance.run_coordinator
    assert isinstance(coordinator, QueuedRunCoordinator)
    assert coordinator.dequeue_interval_seconds == 1
    queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.max_user_code_failure_retries >= 1
    assert queue.max_concurrent_runs == 10


def test_a_lost_run_ends(instance: DagsterInstance) -> None:
    """Monitoring is on with a longest time, and the slots of the dead are given back."""
    assert instance.run_monitoring_enabled
    assert instance.run_monitoring_max_runtime_seconds == 14_400
    assert instance.run_monitoring_settings["free_slots_after_run_end_seconds"] == 60
    assert not instance.run_retries_enabled


def test_it_is_quiet(instance: DagsterInstance) -> None:
    """Old ticks go, nothing is reported to anybody, sensors don't wait for each other."""
    from dagster._core.definitions.run_request import InstigatorType
    from dagster._core.scheduler.instigation import TickStatus

    assert instance.get_tick_retention_settings(InstigatorType.SENSOR)[TickStatus.SUCCESS] == 7
    assert not instance.telemetry_enabled
    assert not instance.nux_enabled
    assert instance.get_sensor_settings()["use_threads"]


def test_the_workspace_names_our_definitions() -> None:
    """``dagster dev -w workspace.yaml`` loads the module of the definitions."""
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())
    assert workspace == {"load_from": [{"python_module": "cronless_dagster.definitions"}]}
