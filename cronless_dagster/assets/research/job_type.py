"""The job type of account research, for either route. Imports no Dagster: workers and the command line need none."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from cronless_dagster.assets.research.accounts import JOB_TYPE
from cronless_dagster.assets.research.feeds import MAX_ITEMS
from cronless_dagster.assets.research.handler import ResearchOptions, refresh_job
from cronless_dagster.assets.research.summaries import WEEKS
from cronless_dagster.engine.job_types import JobType

if TYPE_CHECKING:
    from pathlib import Path

DESCRIPTION = (
    "News of the accounts that a tenant watches: feeds, pages and files, refreshed by scheduled jobs."
    " Materialize a tenant's partition to refresh all of its accounts now; their schedules stay as they are."
)


def account_research(
    *,
    name: str = JOB_TYPE,
    concurrency: int = 16,
    batch_size: int = 500,
    files_home: Path | None = None,
    most_items: int = MAX_ITEMS,
    weeks: int = WEEKS,
    fail_after: timedelta = timedelta(hours=24),
    warn_after: timedelta = timedelta(hours=12),
    **options: Any,
) -> JobType:
    """Return the job type of account research, with its assets `account_research` and `account_overview`.

    Args:
        name: Of the job type; its assets keep theirs.
        concurrency: How many accounts are refreshed at once; how many of one host is the fetcher's affair.
        batch_size: The most accounts of one run.
        files_home: The directory of CSV and Parquet sources; None: CRONLESS_FILES_HOME.
        most_items: Of a feed; what lies beyond is left out.
        weeks: How many ISO weeks a summary counts.
        fail_after: Without a materialization for so long, the assets count as stale.
        warn_after: From when on Dagster warns.
        options: Of `JobType`: `route`, `retry`, `limits`, `lease`, `pool`, ….
    """
    research = ResearchOptions(files_home, most_items, weeks)
    return JobType(
        name=name,
        handler=partial(refresh_job, options=research),
        concurrency=concurrency,
        batch_size=batch_size,
        resources={"fetcher": _fetcher_resource},
        asset=partial(_assets, research=research, fail_after=fail_after, warn_after=warn_after),
        **{"description": DESCRIPTION, **options},
    )


def _fetcher_resource() -> Any:
    from cronless_dagster.assets.fetching.resource import FetcherResource

    return FetcherResource()


def _assets(job_type: JobType, **options: Any) -> Any:
    from cronless_dagster.assets.research.asset import build_assets

    return build_assets(job_type, **options)
