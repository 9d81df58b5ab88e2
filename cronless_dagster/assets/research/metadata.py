"""What the Dagster UI shows of a tenant's refreshes: numbers that it plots, and a table of what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from cronless_dagster.assets.summary import MAX_ERROR_CHARACTERS, lateness_metadata

if TYPE_CHECKING:
    from cronless_dagster.assets.research.tally import TenantTally

TABLE = "cronless_assets.item"
_COLUMNS = dg.TableSchema(
    columns=[
        dg.TableColumn("account", "string"),
        dg.TableColumn("error", "string"),
        dg.TableColumn("source", "string", description="Empty where the account itself can't be used"),
    ]
)


def tenant_metadata(told: TenantTally, items: int) -> dict[str, Any]:
    """Return the metadata of a tenant's materialization.

    Args:
        told: What the run's refreshes of its accounts came to.
        items: All items that its accounts have.
    """
    metadata: dict[str, Any] = {
        "dagster/row_count": items,
        "dagster/partition_row_count": items,
        "dagster/table_name": TABLE,
        "accounts_refreshed": told.refreshed,
        "accounts_failed": told.failed,
        "new_items": told.new,
        "changed_items": told.changed,
        "unchanged_sources": told.unchanged_sources,
        "failed_sources": told.failed_sources,
        **lateness_metadata(told.lateness),
    }
    if told.failures:
        metadata["failures"] = dg.MetadataValue.table(
            records=[
                dg.TableRecord(
                    {
                        "account": one.account,
                        "error": one.error[:MAX_ERROR_CHARACTERS],
                        "source": one.source[:MAX_ERROR_CHARACTERS],
                    }
                )
                for one in told.failures
            ],
            schema=_COLUMNS,
        )
    return metadata
