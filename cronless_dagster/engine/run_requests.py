"""What a run of a claim is called, given and tagged with, however it is asked for: by sensor or by GraphQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uuid import UUID

    from cronless_dagster.engine.job_types import JobType
    from cronless_dagster.engine.runs import HandOver

PREFIX = "cronless"
CLAIM_TAG = "cronless/claim"
DISPATCH_TAG = "cronless/dispatch"
JOB_TYPE_TAG = "cronless/job_type"
MAX_RUNTIME_TAG = "dagster/max_runtime"
# Retries live in the rows; a run that Dagster repeats by itself would find its claim taken.
NO_RETRIES = {"dagster/max_retries": "0"}


def dagster_job_name(job_type: str) -> str:
    """Return the name of the Dagster job whose runs do the work of a job type's claims."""
    return f"{PREFIX}_{job_type}"


def op_name(job_type: str) -> str:
    """Return the name of the op behind a job type's asset, under which a run's config is looked for."""
    return f"{PREFIX}__{job_type}"


def run_config(job_type: str, claim_id: UUID) -> dict[str, Any]:
    """Return the config of a run: the claim's id alone, so that no config is ever invalid."""
    return {"ops": {op_name(job_type): {"config": {"claim_id": str(claim_id)}}}}


def tags_of(one: HandOver, job_type: JobType) -> dict[str, str]:
    """Return the tags by which the run of a hand-over is found and limited."""
    tags = {
        **NO_RETRIES,
        CLAIM_TAG: str(one.claim_id),
        DISPATCH_TAG: str(one.dispatch),
        JOB_TYPE_TAG: job_type.name,
    }
    if job_type.max_runtime is not None:
        tags[MAX_RUNTIME_TAG] = str(int(job_type.max_runtime.total_seconds()))
    if job_type.priority:
        tags["dagster/priority"] = str(job_type.priority)
    return tags
