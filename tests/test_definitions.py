"""The code location: what `-m cronless_dagster.definitions` serves, and what it says when it can't."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from cronless_dagster import definitions
from cronless_dagster.assets.digests import email_digest
from cronless_dagster.assets.job_types import build_asset
from cronless_dagster.assets.research import account_research
from cronless_dagster.assets.webhooks import webhook_renewal
from cronless_dagster.definitions import build_definitions
from cronless_dagster.engine.errors import JobTypeError
from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.resources.rabbitmq import RabbitMQResource
from cronless_dagster.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
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
    assert keys == {"cronless/digest", "cronless/renewal", "schedule_health"}
    assert defs.resolve_sensor_def("cronless_tick").minimum_interval_seconds == 60


def test_sensors_can_be_sharded_and_tuned() -> None:
    """Options reach the sensors."""
    defs = build_definitions(types_of("digest"), shards=2, minimum_interval_seconds=30)
    sensors = list(defs.sensors or [])
    ticking = [sensor for sensor in sensors if sensor.name != "cronless_automation"]
    assert [sensor.name for sensor in ticking] == ["cronless_tick_0_of_2", "cronless_tick_1_of_2"]
    assert {sensor.minimum_interval_seconds for sensor in ticking} == {30}
    dg.Definitions.validate_loadable(defs)


class TestHealth:
    """The health of the schedule, watched by Dagster's automation and not by the tick that it watches."""

    def test_it_is_on_without_anybody_turning_it_on(self) -> None:
        """A sensor of our own evaluates its condition, and no user's asset."""
        defs = build_definitions(types_of("digest"))
        sensor = defs.resolve_sensor_def("cronless_automation")
        assert isinstance(sensor, dg.AutomationConditionSensorDefinition)
        assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
        assert sensor.asset_selection == dg.AssetSelection.assets("schedule_health")

    def test_it_can_be_left_out(self) -> None:
        """Where several of these definitions are merged, one of them watches."""
        defs = build_definitions(types_of("digest"), health=None)
        keys = {key.to_user_string() for key in defs.resolve_all_asset_keys()}
        assert keys == {"cronless/digest"}
        assert [sensor.name for sensor in defs.sensors or []] == ["cronless_tick"]

    def test_its_limits_can_be_given(self) -> None:
        """An option that it doesn't have is refused where it is written."""
        with pytest.raises(TypeError, match="no_such_limit"):
            build_definitions(types_of("digest"), health={"no_such_limit": 1})


class TestResources:
    """What handlers use comes with their job types, or in their place."""

    MADE = JobTypes((JobType(name="digest", handler=print, resources={"mailer": dict}),))

    def test_a_job_type_may_bring_its_own(self) -> None:
        """Nothing more has to be written for the ready-made ones."""
        assert (build_definitions(self.MADE).resources or {})["mailer"] == {}

    def test_one_that_is_given_counts(self) -> None:
        """A team's own mailer, for the same handler."""
        given = build_definitions(self.MADE, resources={"mailer": {"own": True}}).resources or {}
        assert given["mailer"] == {"own": True}


@pytest.mark.parametrize("make", [account_research, email_digest, webhook_renewal])
def test_each_ready_made_job_type_needs_nothing_more(make: Callable[[], JobType]) -> None:
    """Its asset and its resources come with it, whichever of them is used alone."""
    defs = build_definitions(JobTypes((make(),)))
    dg.Definitions.validate_loadable(defs)
    assert defs.resolve_job_def(f"cronless_{make().name}")


def test_ready_made_job_types_load_no_dagster() -> None:
    """Workers and the command line import them too."""
    code = (
        "import sys\n"
        "from cronless_dagster.assets.digests import email_digest\n"
        "from cronless_dagster.assets.research import account_research\n"
        "from cronless_dagster.assets.webhooks import webhook_renewal\n"
        "account_research(), email_digest(), webhook_renewal()\n"
        "assert 'dagster' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_job_type_may_have_several_assets() -> None:
    """The first is what its runs materialize; what is downstream of it comes along, with its automation."""
    base = JobType(name="digest", handler=print)

    @dg.asset(deps=[dg.AssetKey(["cronless", "digest"])], automation_condition=dg.AutomationCondition.eager())
    def overview() -> None:
        """Follow the digest."""

    both = JobType(name="digest", handler=print, asset=lambda _: [build_asset(base), overview])
    defs = build_definitions(JobTypes((both,)), health=None)
    dg.Definitions.validate_loadable(defs)
    job = defs.resolve_job_def("cronless_digest")
    assert job.asset_layer.selected_asset_keys == {dg.AssetKey(["cronless", "digest"])}
    sensor = defs.resolve_sensor_def("cronless_automation")
    assert sensor.asset_selection == dg.AssetSelection.assets("overview")


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
    keys = {key.to_user_string() for key in merged.resolve_all_asset_keys()}
    assert keys == {"mine", "cronless/digest", "schedule_health"}


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
        keys = {key.to_user_string() for key in served.resolve_all_asset_keys()}
        assert keys == {"cronless/digest", "schedule_health"}

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
