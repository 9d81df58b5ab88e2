"""One Dagster sensor instead of thousands of schedules.

The names below are loaded when first used: importing the package costs nothing, so that ``cronless explain``
starts at once and a service can import the schedule parser without Dagster or SQLAlchemy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronless_dagster.component.component import CronlessComponent
    from cronless_dagster.definitions import build_definitions
    from cronless_dagster.engine.errors import PermanentFailure, RetryLater
    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.engine.job_types import JobType, JobTypes
    from cronless_dagster.resources.database import CronlessResource
    from cronless_dagster.resources.rabbitmq import RabbitMQResource
    from cronless_dagster.scheduling.errors import CronlessError, ScheduleError, TimezoneError
    from cronless_dagster.scheduling.limits import Limits
    from cronless_dagster.scheduling.models import Outcome, RetryPolicy
    from cronless_dagster.scheduling.schedules import Schedule, parse_schedule
    from cronless_dagster.sensors.tick import build_tick_sensor, build_tick_sensors
    from cronless_dagster.settings import Settings, SettingsError
    from cronless_dagster.store import jobs
    from cronless_dagster.store.models import ScheduledJob
    from cronless_dagster.store.rows import ClaimedJob

    __version__: str

_HOME_OF = {
    "ClaimedJob": "cronless_dagster.store.rows",
    "CronlessComponent": "cronless_dagster.component.component",
    "CronlessError": "cronless_dagster.scheduling.errors",
    "CronlessResource": "cronless_dagster.resources.database",
    "HandlerContext": "cronless_dagster.engine.handlers",
    "JobType": "cronless_dagster.engine.job_types",
    "JobTypes": "cronless_dagster.engine.job_types",
    "Limits": "cronless_dagster.scheduling.limits",
    "Outcome": "cronless_dagster.scheduling.models",
    "PermanentFailure": "cronless_dagster.engine.errors",
    "RabbitMQResource": "cronless_dagster.resources.rabbitmq",
    "RetryLater": "cronless_dagster.engine.errors",
    "RetryPolicy": "cronless_dagster.scheduling.models",
    "Schedule": "cronless_dagster.scheduling.schedules",
    "ScheduleError": "cronless_dagster.scheduling.errors",
    "ScheduledJob": "cronless_dagster.store.models",
    "Settings": "cronless_dagster.settings",
    "SettingsError": "cronless_dagster.settings",
    "TimezoneError": "cronless_dagster.scheduling.errors",
    "build_definitions": "cronless_dagster.definitions",
    "build_tick_sensor": "cronless_dagster.sensors.tick",
    "build_tick_sensors": "cronless_dagster.sensors.tick",
    "parse_schedule": "cronless_dagster.scheduling.schedules",
}
# `from cronless_dagster import jobs`: add, change, pause and the rest, in the caller's own transaction.
_MODULES = {"jobs": "cronless_dagster.store.jobs"}

__all__ = [
    "ClaimedJob",
    "CronlessComponent",
    "CronlessError",
    "CronlessResource",
    "HandlerContext",
    "JobType",
    "JobTypes",
    "Limits",
    "Outcome",
    "PermanentFailure",
    "RabbitMQResource",
    "RetryLater",
    "RetryPolicy",
    "Schedule",
    "ScheduleError",
    "ScheduledJob",
    "Settings",
    "SettingsError",
    "TimezoneError",
    "__version__",
    "build_definitions",
    "build_tick_sensor",
    "build_tick_sensors",
    "jobs",
    "parse_schedule",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module (PEP 562).

    Raises:
        AttributeError: the package has no such public name.
    """
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("cronless-dagster")
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, those not yet loaded included."""
    return sorted({*globals(), *__all__})
