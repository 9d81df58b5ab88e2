"""Job types of both routes, for the command line's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.engine.job_types import JobTypes

if TYPE_CHECKING:
    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob

job_types = JobTypes()


@job_types.job("digest")
def digest(job: ClaimedJob, context: HandlerContext) -> None:
    """Succeed in a run."""


@job_types.job("mail", route="queue")
def mail(job: ClaimedJob, context: HandlerContext) -> None:
    """Succeed in a worker, or in a run where there is no broker."""
