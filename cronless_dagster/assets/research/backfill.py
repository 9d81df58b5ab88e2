"""A person's backfill: all accounts of some tenants, refreshed without touching their scheduled jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cronless_dagster.assets.research.accounts import accounts_of
from cronless_dagster.assets.research.refreshing import refresh
from cronless_dagster.assets.research.summaries import WEEKS
from cronless_dagster.assets.research.tally import Tally
from cronless_dagster.store.database import engine_for_threads, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Engine

    from cronless_dagster.assets.research.reading import Reader


def refresh_tenants(
    engine: Engine,
    reader: Reader,
    tenants: Sequence[str],
    *,
    concurrency: int,
    weeks: int = WEEKS,
    progress: Callable[[int, int], None] | None = None,
) -> Tally:
    """Refresh every account of these tenants; one that fails never keeps another from its refresh.

    Args:
        engine: The store's engine.
        reader: What sources are read with.
        tenants: Whose accounts.
        concurrency: How many accounts at once.
        weeks: How many ISO weeks a summary counts.
        progress: Called with the accounts done and all there are, after each.
    """
    with transaction(engine) as connection:
        accounts = accounts_of(connection, tenants)
    tally = Tally()
    with (
        engine_for_threads(engine, concurrency) as theirs,
        ThreadPoolExecutor(concurrency, thread_name_prefix="backfill") as pool,
    ):

        def one(account: tuple[str, str]) -> None:
            tenant_id, name = account
            try:
                tally.add(tenant_id, name, refresh(theirs, reader, tenant_id, name, weeks=weeks))
            except Exception as error:  # noqa: BLE001 - an account's own failure, shown as such
                tally.add(tenant_id, name, f"{type(error).__name__}: {error}"[:500])

        try:
            for done, _ in enumerate(pool.map(one, accounts), start=1):
                if progress is not None:
                    progress(done, len(accounts))
        except BaseException:
            # A canceled run begins nothing more.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tally
