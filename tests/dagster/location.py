"""The code location of the crash tests: the real definitions, with switches at the points where processes die."""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

import time
from typing import Any

import dagster as dg

import cronless_dagster.assets.job_types as runs
import cronless_dagster.sensors.tick as sensors
from cronless_dagster.definitions import build_definitions
from cronless_dagster.engine import running
from cronless_dagster.engine.job_types import JobTypes
from tests.dagster import switches
from tests.dagster.job_types import job_types

# Small, so that a run killed in the middle of a small batch has finished a part of it.
running.FINISH_BATCH = 10

_tick, _run_claim = sensors.tick, runs.run_claim


def tick(*arguments: Any, **options: Any) -> Any:
    """Tick, and die with the answer in hand; or begin when Dagster has long given up."""
    late = switches.take("slow_tick")
    if late is not None:
        time.sleep(float(late))
    report = _tick(*arguments, **options)
    switches.die_if("die_after_commit")
    return report


def run_claim(*arguments: Any, **options: Any) -> Any:
    """Run a claim, or die before its fence."""
    switches.die_if("die_before_fence")
    return _run_claim(*arguments, **options)


sensors.tick = tick  # type: ignore[assignment]
runs.run_claim = run_claim  # type: ignore[assignment]


@dg.asset(partitions_def=dg.DynamicPartitionsDefinition(name="own_tenant"))
def own_report(context: dg.AssetExecutionContext) -> None:
    """An asset of a user's, which knows nothing of scheduled jobs."""
    if context.partition_key.startswith("broken"):
        raise ValueError("no report for this tenant")


own_report_job = dg.define_asset_job("own_report_job", selection=[own_report])
all_types = JobTypes(tuple(job_types))
all_types.dagster_job("own_report", own_report_job, partition="tenant_id")


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions, with a sensor that may be evaluated each second."""
    return dg.Definitions.merge(
        build_definitions(all_types, minimum_interval_seconds=1),
        dg.Definitions(assets=[own_report], jobs=[own_report_job]),
    )
