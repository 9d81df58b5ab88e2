"""Job types of the queue route for the command line's tests."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from cronless_dagster.engine.job_types import JobTypes

if TYPE_CHECKING:
    from cronless_dagster.store.rows import ClaimedJob

job_types = JobTypes()


@job_types.job("work", route="queue")
def work(job: ClaimedJob) -> None:
    """Do what the payload says."""
    if job.payload.get("fails"):
        raise RuntimeError("the site is down")
    if wait_for := job.payload.get("wait_for"):
        Path(job.payload["begun"]).touch()
        while not Path(wait_for).exists():
            time.sleep(0.02)


@job_types.job("play", route="queue")
async def play(job: ClaimedJob) -> None:
    """Succeed."""


@job_types.job("report")
def report(job: ClaimedJob) -> None:
    """Succeed, as a run."""
