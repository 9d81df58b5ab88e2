"""The tick sensor: claims what is due, asks Dagster for one run a claim, or publishes. It never does the work."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import dagster as dg

from cronless_dagster.assets.job_types import build_job
from cronless_dagster.engine.run_requests import dagster_job_name, run_config, tags_of
from cronless_dagster.engine.runs import HandOver
from cronless_dagster.engine.tick import BUDGET_SECONDS, HISTORY_DAYS, MAX_HAND_OVER, tick
from cronless_dagster.rabbitmq.publisher import Publisher
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.shards import shard as shard_of
from cronless_dagster.sensors.dagster_jobs import DagsterJobRequests
from cronless_dagster.sensors.dagster_runs import DagsterRuns
from cronless_dagster.settings import Settings
from cronless_dagster.telemetry.serving import start

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobType, JobTypes
    from cronless_dagster.engine.queueing import Queue
    from cronless_dagster.engine.report import TickReport
    from cronless_dagster.resources.database import CronlessResource
    from cronless_dagster.resources.rabbitmq import RabbitMQResource

RESOURCE_KEY = "cronless"
BROKER_KEY = "rabbitmq"


class TickFailed(dg.DagsterError):
    """Nothing could be done at this tick; what is due stays due.

    One of Dagster's own errors, since it passes those on as they are: the tick shows our sentence first.
    """


def build_tick_sensor(
    job_types: JobTypes,
    *,
    name: str = "cronless_tick",
    shard: tuple[int, int] = (0, 1),
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    resource_key: str = RESOURCE_KEY,
    broker_key: str = BROKER_KEY,
    max_hand_over: int = MAX_HAND_OVER,
    budget_seconds: float = BUDGET_SECONDS,
    history_days: int = HISTORY_DAYS,
) -> dg.SensorDefinition:
    """Return a sensor that evaluates the schedule, by default once a minute.

    Any number may run side by side, sharded or not: no row is claimed twice.

    Args:
        job_types: What may be claimed. The Dagster jobs of all of them must be in the same code location.
        name: The sensor's name.
        shard: `(i, n)`: serve the i-th of n equal parts of the id space, counted from 0.
        minimum_interval_seconds: Between the beginnings of two ticks.
        default_status: RUNNING: on without anybody turning it on; a stop in the UI beats it.
        resource_key: Where the code location has its `CronlessResource`.
        broker_key: Where it has its `RabbitMQResource`, needed only for job types of the queue route.
        max_hand_over: The most runs asked for; Dagster takes some 0.25 s to make each.
        budget_seconds: No new batch begins after so long. Together with one statement's limit of 15 s it must
            stay below the time after which Dagster gives up on a sensor, 60 s by default.
        history_days: How long history is kept.

    Raises:
        dagster.DagsterError: Dagster refuses what a job type says of its runs, such as its tags.
    """
    ids = shard_of(*shard)
    for job_type in (one for one in job_types if one.dagster_job is None):
        # What Dagster refuses in a request must show here and now: at a tick it would take all others with it.
        _run_request(HandOver(UUID(int=0), job_type.name, 0, 0, manual=False), job_type)

    queued = any(job_type.route == "queue" for job_type in job_types)

    @dg.sensor(
        name=name,
        jobs=[build_job(job_type) for job_type in job_types],
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource_key, broker_key} if queued else {resource_key},
        description=_description(shard),
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        resource: CronlessResource = getattr(context.resources, resource_key)
        try:
            start(Settings.from_env(os.environ), "cronless-sensor", resource.engine())
            report = tick(
                resource.engine(),
                job_types,
                ids=ids,
                runs=DagsterRuns(context.instance),
                queue=_queue(getattr(context.resources, broker_key)) if queued else None,
                max_hand_over=max_hand_over,
                budget_seconds=budget_seconds,
                history_days=history_days,
            )
        except CronlessError as error:
            raise TickFailed(str(error)) from None
        return _result(context, report, job_types, resource.engine())

    return evaluate


def build_tick_sensors(
    job_types: JobTypes, *, shards: int = 1, name: str = "cronless_tick", **options: Any
) -> list[dg.SensorDefinition]:
    """Return `shards` sensors that cut the id space in equal parts; options as of `build_tick_sensor`.

    Dagster's daemon evaluates sensors one after the other unless `dagster.yaml` says `sensors: {use_threads:
    true, num_workers: N}`.
    """
    if shards == 1:
        return [build_tick_sensor(job_types, name=name, **options)]
    return [
        build_tick_sensor(job_types, name=f"{name}_{part}_of_{shards}", shard=(part, shards), **options)
        for part in range(shards)
    ]


def _queue(resource: RabbitMQResource) -> Queue | None:
    broker = resource.broker()
    return None if broker is None else partial(Publisher, broker)


def _result(
    context: dg.SensorEvaluationContext, report: TickReport, job_types: JobTypes, engine: Engine
) -> dg.SensorResult:
    summary = report.summary()
    # A tick's log is a file that Dagster never deletes: none for ticks that say it all in their skip reason.
    for error in report.errors:
        context.log.error(error)
    requests, own = [], DagsterJobRequests(context, engine)
    for one in report.hand_over:
        job_type = job_types[one.job_type]
        if job_type.dagster_job is None:
            requests.append(_run_request(one, job_type))
            continue
        request, refused = own.request(one, job_type, tags_of(one, job_type))
        if request is not None:
            requests.append(request)
        if refused is not None:
            context.log.warning(refused)
    if requests:
        context.log.info("%s (%.2f s)", summary, sum(report.seconds.values()))
        return dg.SensorResult(run_requests=requests, dynamic_partitions_requests=own.partitions)
    if report.errors:
        # Nothing is lost by failing: there is nothing to hand over, and a red tick is seen.
        raise TickFailed(summary)
    return dg.SensorResult(skip_reason=summary)


def _run_request(one: HandOver, job_type: JobType) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=one.run_key,
        job_name=dagster_job_name(job_type.name),
        run_config=run_config(job_type.name, one.claim_id),
        tags={**job_type.tags, **tags_of(one, job_type)},
    )


def _description(shard: tuple[int, int]) -> str:
    part, parts = shard
    served = "" if parts == 1 else f" Serves part {part + 1} of {parts} of the id space."
    return (
        "Claims the scheduled jobs that are due and asks for one run for each batch of a job type, or publishes a"
        f" message for each job.{served}"
    )
