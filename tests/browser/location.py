"""The code location that the browser's tests look at: the ready-made assets, ticking every five seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from cronless_dagster.assets.digests import email_digest
from cronless_dagster.assets.research import account_research
from cronless_dagster.definitions import build_definitions
from cronless_dagster.engine.job_types import JobTypes

if TYPE_CHECKING:
    from cronless_dagster.store.rows import ClaimedJob

job_types = JobTypes((account_research(), email_digest()))


@job_types.job("usage_report")
@job_types.job("inbox_sync")
def nothing(job: ClaimedJob) -> None:
    """Stand for what else a product does."""


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions; a run is one process, which starts in half the time of two."""
    return dg.Definitions.merge(
        build_definitions(job_types, minimum_interval_seconds=5),
        dg.Definitions(executor=dg.in_process_executor),
    )
