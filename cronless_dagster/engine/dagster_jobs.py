"""A Dagster job of the user's own as a job type: each scheduled job that is due becomes one run of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cronless_dagster.engine.errors import JobTypeError, PermanentFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cronless_dagster.store.rows import ClaimedJob

DAGSTER_JOB = "dagster_job"
"""The route of their claims: a run's end is the claim's end, and whoever doesn't know that leaves them alone."""
_FIELDS = ("tenant_id", "name")
_PAYLOAD = "payload."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOf:
    """What one run of the Dagster job is given.

    Attributes:
        partition_key: The partition, for a partitioned Dagster job.
        run_config: As for a `RunRequest`.
        tags: Further tags of the run.
    """

    partition_key: str | None = None
    run_config: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DagsterJob:
    """Which Dagster job, and what a scheduled job means for its run.

    Attributes:
        definition: The Dagster job as the user defined it; anything with a `name`.
        request: Says what the run of a scheduled job is given. What it raises fails that scheduled job alone.
    """

    definition: Any
    request: Callable[[ClaimedJob], RunOf]


def run_of(
    partition: str | Callable[[ClaimedJob], str] | None,
    run_config: Mapping[str, Any] | Callable[[ClaimedJob], Mapping[str, Any]] | None,
) -> Callable[[ClaimedJob], RunOf]:
    """Return what makes a run's request from a scheduled job.

    Args:
        partition: "tenant_id", "name", "payload.<key>", or a function of the job; None: not partitioned.
        run_config: The same for each run, or a function of the job.

    Raises:
        JobTypeError: A partition that is none of these.
    """
    if isinstance(partition, str) and partition not in _FIELDS and not partition.startswith(_PAYLOAD):
        raise JobTypeError(
            f"the partition is {partition!r}: give 'tenant_id', 'name', 'payload.<key>' or a function of the job"
        )

    def request(job: ClaimedJob) -> RunOf:
        return RunOf(
            partition_key=partition(job) if callable(partition) else _named(partition, job),
            run_config=run_config(job) if callable(run_config) else run_config or {},
        )

    return request


def _named(partition: str | None, job: ClaimedJob) -> str | None:
    if partition is None:
        return None
    if partition in _FIELDS:
        return str(getattr(job, partition))
    key = partition.removeprefix(_PAYLOAD)
    if not isinstance(job.payload.get(key), str):
        raise PermanentFailure(f"its payload has no text under {key!r}, which names its partition: add it")
    return str(job.payload[key])


def no_handler(job: ClaimedJob) -> None:
    """Stand in for the handler of a type whose work is a Dagster job.

    Raises:
        PermanentFailure: Always: whoever called it is no tick sensor.
    """
    raise PermanentFailure(
        f"job type {job.job_type!r} is a Dagster job: leave its scheduled jobs to the tick sensor"
    )
