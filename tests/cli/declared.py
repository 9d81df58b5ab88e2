"""The job types that the command line's tests declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.engine.job_types import JobTypes

if TYPE_CHECKING:
    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob

job_types = JobTypes()


@job_types.job("digest")
def digest(job: ClaimedJob, context: HandlerContext) -> None:
    """Succeed."""


@job_types.job("refresh")
def refresh(job: ClaimedJob, context: HandlerContext) -> None:
    """Fail."""
    raise RuntimeError("the site is down")
