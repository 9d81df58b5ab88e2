"""What this team's scheduled jobs do, in the three ways in which a handler may take its work.

Two of them are named in `defs.yaml`. That of the queue route is declared here, where `cronless worker` finds it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cronless_dagster import JobTypes, Outcome, PermanentFailure

if TYPE_CHECKING:
    from uuid import UUID

    import pandas as pd

    from cronless_dagster import ClaimedJob, HandlerContext

job_types = JobTypes()


def remind(job: ClaimedJob, context: HandlerContext) -> None:
    """Remind a customer of what is overdue. Called with each job, in several threads."""
    if "customer" not in job.payload:
        raise PermanentFailure("its payload names no customer: add one")
    context.log.info("reminded %s of %s", job.payload["customer"], job.tenant_id)


def score(jobs: pd.DataFrame) -> dict[UUID, Outcome]:
    """Score the leads of many tenants at once. Called with all jobs of a claim."""
    return {
        job_id: Outcome("success") if "lead" in payload else Outcome("failure", error="no lead is named")
        for job_id, payload in zip(jobs["job_id"], jobs["payload"], strict=True)
    }


@job_types.job("ping", route="queue")
async def ping(job: ClaimedJob) -> None:
    """Ask a customer's address for a sign of life. One of many coroutines on a worker's event loop."""
    await asyncio.sleep(job.payload.get("seconds", 0))
