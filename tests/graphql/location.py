"""The code location of these tests: job types whose tick sensor is off until a test turns it on."""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

import dagster as dg

from cronless_dagster.definitions import build_definitions
from tests.dagster.job_types import job_types


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions, with a sensor that may be evaluated each second."""
    return build_definitions(
        job_types,
        health=None,
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
