"""A job type in Dagster: an asset, its check, and the Dagster job whose runs do the work of claims."""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

import dagster as dg
from pydantic import Field

from cronless_dagster.assets.summary import failed_jobs_check, summary_metadata
from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.engine.run_requests import (
    CLAIM_TAG,
    JOB_TYPE_TAG,
    NO_RETRIES,
    PREFIX,
    dagster_job_name,
    op_name,
)
from cronless_dagster.engine.running import ClaimReport, run_claim
from cronless_dagster.scheduling.errors import CronlessError

CHECK_NAME = "no_failed_jobs"
# Each line of a run's log is a connection and an event row, so a long run reports seldom.
PROGRESS_EVERY_SECONDS = 30.0
# Dagster doesn't export the class by name.
AssetJob: TypeAlias = Any


class ClaimConfig(dg.Config):
    """What a run is told: no payload, only which claim."""

    claim_id: str = Field(default="", description="The claim to run; the tick sensor fills it in.")


def asset_key(job_type: str) -> dg.AssetKey:
    """Return the key of a job type's asset."""
    return dg.AssetKey([PREFIX, job_type])


def build_asset(job_type: JobType, *, resource_key: str = "cronless") -> dg.AssetsDefinition:
    """Return the asset of a job type: one summary materialization for each claim that a run worked on."""
    key = asset_key(job_type.name)

    # A multi-asset of one, because only a subsettable one may leave its check out: a run that had nothing to do
    # must not overwrite what the check said of the last batch.
    @dg.multi_asset(
        name=op_name(job_type.name),
        specs=[
            dg.AssetSpec(
                key,
                description=job_type.description,
                group_name=PREFIX,
                kinds={"python", "postgres"},
                tags={JOB_TYPE_TAG: job_type.name},
                skippable=True,
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(
                CHECK_NAME, asset=key, description="Did all scheduled jobs of the run's batch succeed?"
            )
        ],
        can_subset=True,
        required_resource_keys={resource_key, *job_type.resources},
        pool=job_type.pool,
    )
    def run(context: dg.AssetExecutionContext, config: ClaimConfig) -> Iterator[dg.MaterializeResult[Any]]:
        report = work_on_claim(context, job_type, config.claim_id, key=key, resource_key=resource_key)
        if report is None:
            return
        yield dg.MaterializeResult(
            asset_key=key,
            metadata=summary_metadata(report),
            check_results=[failed_jobs_check(report, CHECK_NAME, key)],
        )

    return run


def assets_of(job_type: JobType) -> list[dg.AssetsDefinition]:
    """Return the assets of a job type, its own kind or the usual one; the first is what its runs materialize."""
    made = (job_type.asset or build_asset)(job_type)
    return [made] if isinstance(made, dg.AssetsDefinition) else list(made)


def build_job(job_type: JobType) -> AssetJob:
    """Return the Dagster job of a job type: one process a run, since a run is one batch."""
    if job_type.dagster_job is not None:
        return job_type.dagster_job.definition
    keys = assets_of(job_type)[0].keys if job_type.asset is not None else [asset_key(job_type.name)]
    return _job(job_type.name, job_type.description, tuple(sorted(keys, key=str)))


# Several sensors and the definitions share it: Dagster takes two equal jobs for a clash of names.
@lru_cache
def _job(job_type: str, description: str | None, keys: tuple[dg.AssetKey, ...]) -> AssetJob:
    return dg.define_asset_job(
        dagster_job_name(job_type),
        selection=list(keys),
        executor_def=dg.in_process_executor,
        description=description,
        tags={JOB_TYPE_TAG: job_type, **NO_RETRIES},
    )


def work_on_claim(
    context: dg.AssetExecutionContext,
    job_type: JobType,
    claim: str,
    *,
    key: dg.AssetKey,
    resource_key: str = "cronless",
) -> ClaimReport | None:
    """Run a claim within a run; None where there was nothing to do, which the run's log and an observation tell.

    Raises:
        dagster.Failure: The claim is none, was taken away in the middle, or isn't in this database.
    """
    claim_id = claim_of(context, claim)
    if claim_id is None:
        return None
    try:
        report = run_claim(
            getattr(context.resources, resource_key).engine(),
            JobTypes((job_type,)),
            claim_id,
            execution_id=UUID(context.run.run_id),
            run_id=context.run.run_id,
            log=context.log,
            progress=progress_of(context),
            dagster=context,
        )
    except CronlessError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
    if report.status == "unknown":
        # Green would hide the one grave cause: a run that looks into another database than its sensor.
        raise dg.Failure(
            description=f"{report.message}; check that sensor and runs are given the same database",
            allow_retries=False,
        )
    if report.status != "done":
        context.log.warning(report.message)
        # No materialization: nothing was done. An observation shows it beside those that did something.
        context.log_event(
            dg.AssetObservation(
                key, metadata={"claim": str(claim_id), "status": report.status, "message": report.message}
            )
        )
        return None
    return report


def claim_of(context: dg.AssetExecutionContext, text: str) -> UUID | None:
    """Return the claim that a run was given; None, with a warning in its log, where it was given none.

    Raises:
        dagster.Failure: The text is no claim's id.
    """
    if not text:
        context.log.warning(
            "No claim was given, so there is nothing to do: runs of this asset are made by the tick sensor, one for"
            " each batch of scheduled jobs that is due. To run a scheduled job now, use `cronless trigger`."
        )
        return None
    try:
        return UUID(text)
    except ValueError:
        raise dg.Failure(
            description=f"claim_id {text[:80]!r} is no claim: leave runs to the tick sensor, or copy the tag"
            f" {CLAIM_TAG} of a run",
            allow_retries=False,
        ) from None


def progress_of(context: dg.AssetExecutionContext) -> Callable[[ClaimReport], None]:
    """Return what logs the progress of a claim, seldom."""
    told_at = time.monotonic()

    def tell(report: ClaimReport) -> None:
        nonlocal told_at
        if time.monotonic() - told_at < PROGRESS_EVERY_SECONDS:
            return
        told_at = time.monotonic()
        context.log.info(
            "%s of %s jobs finished, %s of them failed",
            *(f"{count:,}" for count in (report.finished, report.job_count, report.failed)),
        )

    return tell
