"""The code location: assets, Dagster jobs and tick sensors of the declared job types.

`dagster … -m cronless_dagster.definitions` serves the job types of the modules that CRONLESS_JOB_TYPES names; a
project with definitions of its own merges `build_definitions(job_types)` into them.
"""

from __future__ import annotations

import os
from typing import Any

import dagster as dg

from cronless_dagster.assets.job_types import build_asset, build_job
from cronless_dagster.demo import JOB_TYPES_MODULE
from cronless_dagster.engine.job_types import JobTypes, load_job_types
from cronless_dagster.resources.database import CronlessResource
from cronless_dagster.resources.rabbitmq import RabbitMQResource
from cronless_dagster.sensors.tick import BROKER_KEY, RESOURCE_KEY, build_tick_sensors
from cronless_dagster.settings import Settings


def build_definitions(
    job_types: JobTypes,
    *,
    database_url: str | None = None,
    rabbitmq: RabbitMQResource | None = None,
    shards: int = 1,
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
        sensor_options: As of `build_tick_sensor`, `minimum_interval_seconds` for example.
    """
    resources: dict[str, Any] = {RESOURCE_KEY: CronlessResource(database_url=database_url or "")}
    if any(job_type.route == "queue" for job_type in job_types):
        resources[BROKER_KEY] = rabbitmq or RabbitMQResource()
    return dg.Definitions(
        assets=[build_asset(job_type) for job_type in job_types],
        jobs=[build_job(job_type) for job_type in job_types],
        sensors=build_tick_sensors(job_types, shards=shards, **sensor_options),
        resources=resources,
    )


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
