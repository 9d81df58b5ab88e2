"""The code location: assets, Dagster jobs and tick sensors of the declared job types.

`dagster … -m cronless_dagster.definitions` serves the job types of the modules that CRONLESS_JOB_TYPES names; a
project with definitions of its own merges `build_definitions(job_types)` into them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dagster as dg

from cronless_dagster.assets.health import build_health_asset
from cronless_dagster.assets.job_types import assets_of, build_job
from cronless_dagster.demo import JOB_TYPES_MODULE
from cronless_dagster.engine.job_types import JobTypes, load_job_types
from cronless_dagster.resources.database import CronlessResource
from cronless_dagster.resources.rabbitmq import RabbitMQResource
from cronless_dagster.sensors.tick import BROKER_KEY, RESOURCE_KEY, build_tick_sensors
from cronless_dagster.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

AUTOMATION_SENSOR = "cronless_automation"


def build_definitions(
    job_types: JobTypes,
    *,
    database_url: str | None = None,
    rabbitmq: RabbitMQResource | None = None,
    shards: int = 1,
    health: Mapping[str, Any] | None = MappingProxyType({}),
    resources: Mapping[str, Any] = MappingProxyType({}),
    **sensor_options: Any,
) -> dg.Definitions:
    """Return everything that Dagster needs to run scheduled jobs of these types.

    Args:
        job_types: Declare all of them before this call.
        database_url: Give an `EnvVar`, since Dagster's UI shows a plain text; None: CRONLESS_DATABASE_URL, or the
            file named by CRONLESS_DATABASE_URL_FILE.
        rabbitmq: The broker of the job types on the queue route; None: CRONLESS_BROKER_URL and the settings beside
            it. Where no broker is named, those types take the run route.
        shards: How many tick sensors cut the id space among themselves.
        health: Options of `build_health_asset`, the asset `schedule_health`; None leaves it out, as all but one
            must where several are merged.
        resources: Those that handlers use, in place of what their job types would make.
        sensor_options: As of `build_tick_sensor`, `minimum_interval_seconds` for example.
    """
    assets = [asset for one in job_types if one.dagster_job is None for asset in assets_of(one)]
    if health is not None:
        assets.append(build_health_asset(**health))
    return dg.Definitions(
        assets=assets,
        # Users' own Dagster jobs come with the sensors that target them.
        jobs=[build_job(one) for one in job_types if one.dagster_job is None],
        sensors=[*build_tick_sensors(job_types, shards=shards, **sensor_options), *_automation(assets)],
        resources=_resources(job_types, database_url, rabbitmq, resources),
    )


def _resources(
    job_types: JobTypes,
    database_url: str | None,
    rabbitmq: RabbitMQResource | None,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    made: dict[str, Any] = {RESOURCE_KEY: CronlessResource(database_url=database_url or ""), **given}
    if any(job_type.route == "queue" for job_type in job_types):
        made[BROKER_KEY] = rabbitmq or RabbitMQResource()
    for job_type in job_types:
        if isinstance(job_type.resources, Mapping):
            made |= {key: make() for key, make in job_type.resources.items() if key not in made}
    return made


def _automation(assets: Sequence[dg.AssetsDefinition]) -> list[dg.SensorDefinition]:
    """Return the sensor of our assets' automation conditions, if they have any.

    Dagster's own default sensor would evaluate users' assets too, and is off until a person turns it on.
    """
    automated = [
        key
        for asset in assets
        for key, spec in asset.specs_by_key.items()
        if spec.automation_condition is not None
    ]
    if not automated:
        return []
    return [
        dg.AutomationConditionSensorDefinition(
            AUTOMATION_SENSOR,
            target=dg.AssetSelection.assets(*automated),
            default_status=dg.DefaultSensorStatus.RUNNING,
        )
    ]


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions that the environment asks for; evaluated by Dagster, not by importing this module.

    Raises:
        SettingsError: A setting can't be used.
        JobTypeError: A module can't be imported, or declares no job types.
    """
    settings = Settings.from_env(os.environ)
    declared = [load_job_types(module) for module in settings.job_types or (JOB_TYPES_MODULE,)]
    merged = JobTypes(tuple(job_type for job_types in declared for job_type in job_types))
    return build_definitions(merged, budget_seconds=settings.tick_seconds, history_days=settings.history_days)
