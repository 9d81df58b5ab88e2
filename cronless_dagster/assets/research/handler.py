"""The handler of research jobs, for runs and for workers of the queue route alike."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from cronless_dagster.assets.fetching.shared import fetcher_from_settings
from cronless_dagster.assets.partitions import TenantError, tenant_partition
from cronless_dagster.assets.research.accounts import AccountError
from cronless_dagster.assets.research.feeds import MAX_ITEMS
from cronless_dagster.assets.research.files import Files
from cronless_dagster.assets.research.reading import Reader
from cronless_dagster.assets.research.refreshing import Refreshed, refresh
from cronless_dagster.assets.research.summaries import WEEKS
from cronless_dagster.engine.errors import PermanentFailure
from cronless_dagster.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cronless_dagster.assets.fetching.fetcher import Fetcher
    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob


@dataclass(frozen=True, slots=True)
class ResearchOptions:
    """What a research job type can be told.

    Attributes:
        files_home: The directory of CSV and Parquet sources; None: CRONLESS_FILES_HOME.
        most_items: Of a feed; what lies beyond is left out.
        weeks: How many ISO weeks a summary counts.
    """

    files_home: Path | None = None
    most_items: int = MAX_ITEMS
    weeks: int = WEEKS

    def reader(self, fetcher: Fetcher, settings: Settings) -> Reader:
        """Return what sources are read with."""
        files = Files(self.files_home or settings.files_home, settings.fetch_bytes)
        return Reader(fetcher, files, self.most_items)


def refresh_job(
    job: ClaimedJob,
    context: HandlerContext,
    *,
    options: ResearchOptions,
    reader: Reader | None = None,
    told: Callable[[ClaimedJob, Refreshed | str], None] | None = None,
) -> None:
    """Refresh the account that a scheduled job names, by its payload's "account" or by its own name.

    Args:
        job: Of the account's tenant.
        context: Where the tables are.
        options: Of the job type.
        reader: What sources are read with; None: this process's own, by the settings of the environment.
        told: Is told what came of it, or why nothing did, from the thread that did it.

    Raises:
        PermanentFailure: The tenant, the account or all of its sources can't be used as they are.
        RetryLater: All sources that may be better later asked to be left alone for a while.
        NothingRead: No source could be read, and some may be at the next try.
    """
    try:
        tenant_partition(job.tenant_id)
    except TenantError as error:
        raise PermanentFailure(str(error)) from error
    try:
        refreshed = refresh(
            context.engine,
            reader or process_reader(options),
            job.tenant_id,
            _account_of(job),
            weeks=options.weeks,
        )
    except Exception as error:
        if told is not None:
            told(job, str(error))
        if isinstance(error, AccountError):
            raise PermanentFailure(str(error)) from error
        raise
    if told is not None:
        told(job, refreshed)
    refreshed.raise_if_nothing_was_read()


def _account_of(job: ClaimedJob) -> str:
    name = job.payload.get("account", job.name)
    if not isinstance(name, str) or not name:
        raise AccountError(
            f'the payload names the account {str(name)[:80]!r}: write its name, as in {{"account": "acme"}}'
        )
    return name


@lru_cache(maxsize=8)
def process_reader(options: ResearchOptions) -> Reader:
    """Return this process's reader: its connections and what it knows of robots.txt live from job to job."""
    settings = Settings.from_env(os.environ)
    return options.reader(fetcher_from_settings(settings), settings)
