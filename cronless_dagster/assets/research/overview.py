"""All tenants side by side: how many accounts and items, and the last whole week against the one before."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from cronless_dagster.assets.research.summaries import first_monday
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Engine

COLUMNS = ("accounts", "items", "items_last_week", "items_week_before", "failed_sources")
_SUMMARIES = text(
    "SELECT account.tenant_id, COALESCE(summary.items, 0) AS items,"
    " COALESCE(CAST(summary.weekly ->> :last_week AS integer), 0) AS items_last_week,"
    " COALESCE(CAST(summary.weekly ->> :week_before AS integer), 0) AS items_week_before,"
    " COALESCE(summary.failed_sources, 0) AS failed_sources"
    " FROM cronless_assets.account AS account"
    " LEFT JOIN cronless_assets.account_summary AS summary ON summary.account_id = account.id"
)
# Two at once would each remove what the other one adds.
_ALONE = text("LOCK TABLE cronless_assets.tenant_overview IN SHARE ROW EXCLUSIVE MODE")
_FORGET = text("DELETE FROM cronless_assets.tenant_overview WHERE tenant_id <> ALL(CAST(:tenants AS text[]))")
_WRITE = text(
    "INSERT INTO cronless_assets.tenant_overview AS overview (tenant_id, accounts, items, items_last_week,"
    " items_week_before, failed_sources, refreshed_at)"
    " SELECT row.*, :now FROM unnest(CAST(:tenants AS text[]), CAST(:accounts AS integer[]), CAST(:items AS integer[]),"
    " CAST(:items_last_week AS integer[]), CAST(:items_week_before AS integer[]), CAST(:failed_sources AS integer[]))"
    " AS row (tenant_id, accounts, items, items_last_week, items_week_before, failed_sources)"
    " ON CONFLICT (tenant_id) DO UPDATE SET accounts = excluded.accounts, items = excluded.items,"
    " items_last_week = excluded.items_last_week, items_week_before = excluded.items_week_before,"
    " failed_sources = excluded.failed_sources, refreshed_at = excluded.refreshed_at"
)


def write_overview(engine: Engine) -> pd.DataFrame:
    """Write the table `tenant_overview` anew from the accounts' summaries, and return it, one row a tenant.

    Indexed by `tenant_id`, with the columns of `COLUMNS`. Weeks are ISO weeks in UTC: "last week" is the last one that
    is over.
    """
    import pandas as pd

    with transaction(engine, statement_timeout_ms=60_000) as connection:
        connection.execute(_ALONE)
        now = current_time(connection)
        this_week = first_monday(now, weeks=1)
        last_week, week_before = (f"{this_week - timedelta(weeks=ago):%Y-%m-%d}" for ago in (1, 2))
        rows = connection.execute(_SUMMARIES, {"last_week": last_week, "week_before": week_before})
        accounts = pd.DataFrame(rows.all(), columns=list(rows.keys()))
        overview = accounts.assign(accounts=1).groupby("tenant_id")[list(COLUMNS)].sum().astype("int64")
        values = {name: overview[name].tolist() for name in COLUMNS}
        tenants = [str(tenant) for tenant in overview.index]
        connection.execute(_FORGET, {"tenants": tenants})
        connection.execute(_WRITE, {"tenants": tenants, "now": now, **values})
    return overview
