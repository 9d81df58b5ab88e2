"""The code location: what `-m cronless_dagster.definitions` serves, and what it says when it can't."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from cronless_dagster import definitions
from cronless_dagster.definitions import build_definitions
from cronless_dagster.engine.errors import JobTypeError
from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.resources.rabbitmq import RabbitMQResource
from cronless_dagster.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path


def types_of(*names: str) -> JobTypes:
    """Declare job types that do nothing."""
    return JobTypes(tuple(JobType(name=name, handler=print) for name in names))


def test_each_job_type_has_its_asset_and_its_dagster_job() -> None:
    """Nothing has to be written by hand."""
    defs = build_definitions(types_of("digest", "renewal"))
    names = {job.name for job in defs.resolve_all_job_defs() if not job.name.startswith("__")}
    assert names == {"cronless_digest", "cronless_renewal"}
    keys = {key.to_user_string() for key in defs.resolve_all_asset_keys()}
    assert keys == {"cronless/digest", "cronless/renewal"}
    assert defs.resolve_sensor_def("cronless_tick").minimum_interval_seconds == 60


def test_sensors_can_be_sharded_and_tuned() -> None:
    """Options reach the sensors."""
    defs = build_definitions(types_of("digest"), shards=2, minimum_interval_seconds=30)
    sensors = list(defs.sensors or [])
    assert [sensor.name for sensor in sensors] == ["cronless_tick_0_of_2", "cronless_tick_1_of_2"]
    assert {sensor.minimum_interval_seconds for sensor in sensors} == {30}
    dg.Definitions.validate_loadable(defs)


class TestBroker:
    """The broker's resource is there for those who need it."""

    QUEUED = JobTypes((JobType(name="refresh", handler=print, route="queue"),))

    def test_the_environments_is_the_default(self) -> None:
        """Which of its settings counts is read at each tick."""
        defs = build_definitions(self.QUEUED)
        assert defs.resources is not None
        assert defs.resources["rabbitmq"] == RabbitMQResource()
        dg.Definitions.validate_loadable(defs)

    def test_another_one_can_be_given(self) -> None:
        """By an EnvVar, so that the UI doesn't show its password."""
        given = RabbitMQResource(url=dg.EnvVar("MY_BROKER"), prefix="mine")
        defs = build_definitions(self.QUEUED, rabbitmq=given)
        assert defs.resources is not None
        assert defs.resources["rabbitmq"] is given
        dg.Definitions.validate_loadable(defs)

    def test_without_a_queue_there_is_none(self) -> None:
        """Nobody is asked for what nobody uses."""
        assert "rabbitmq" not in (build_definitions(types_of("digest")).resources or {})


def test_they_merge_into_a_project(engine: object) -> None:
    """A project has definitions of its own."""

    @dg.asset
    def mine() -> None:
        """The project's own asset."""

    merged = dg.Definitions.merge(dg.Definitions(assets=[mine]), build_definitions(types_of("digest")))
    dg.Definitions.validate_loadable(merged)
    assert len(merged.resolve_all_asset_keys()) == 2


class TestFromTheEnvironment:
    """`defs` reads the settings when Dagster asks for it, not when the module is imported."""

    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """A module that declares job types."""
        (tmp_path / "my_job_types.py").write_text(
            "from cronless_dagster import JobTypes\n"
            "job_types = JobTypes()\n"
            "@job_types.job('digest')\n"
            "def digest(job):\n"
            "    'Mail it.'\n",
            encoding="utf-8",
        )
        monkeypatch.syspath_prepend(tmp_path)
        return "my_job_types"

    def test_the_named_modules_are_served(self, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The setting names modules that declare job types."""
        monkeypatch.setenv("CRONLESS_JOB_TYPES", module)
        served = definitions.defs()
        assert [key.to_user_string() for key in served.resolve_all_asset_keys()] == ["cronless/digest"]

    def test_a_type_in_two_modules_is_refused(self, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two handlers of one name: neither is right."""
        monkeypatch.setenv("CRONLESS_JOB_TYPES", f"{module},{module}")
        with pytest.raises(JobTypeError, match="'digest' is declared twice"):
            definitions.defs()

    def test_a_missing_module_is_one_clear_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Dagster shows it where the code location should be."""
        monkeypatch.setenv("CRONLESS_JOB_TYPES", "no_such_module")
        with pytest.raises(JobTypeError, match=r"'no_such_module'.*CRONLESS_JOB_TYPES"):
            definitions.defs()

    def test_a_setting_that_cannot_be_is_one_clear_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A tick that outlasts Dagster's patience would lose its hand-over each time."""
        monkeypatch.setenv("CRONLESS_TICK_SECONDS", "90")
        with pytest.raises(SettingsError, match="gives up after 60 s"):
            definitions.defs()

    @pytest.mark.dagster
    def test_dagster_finds_them(self, module: str, tmp_path: Path) -> None:
        """`dagster definitions validate -m …` is what a deployment's check runs."""
        import os

        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "dagster",
                "definitions",
                "validate",
                "-m",
                "cronless_dagster.definitions",
            ],
            env={**os.environ, "CRONLESS_JOB_TYPES": module, "PYTHONPATH": str(tmp_path), "DAGSTER_HOME": ""},
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
