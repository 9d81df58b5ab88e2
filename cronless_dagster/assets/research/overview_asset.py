"""The asset `account_overview`: downstream of research, made anew whenever some tenant's research was."""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

from datetime import timedelta
from typing import Any

import dagster as dg

from cronless_dagster.assets.research.overview import COLUMNS, write_overview
from cronless_dagster.scheduling.errors import CronlessError

KEY = dg.AssetKey("account_overview")
TABLE = "cronless_assets.tenant_overview"
MAX_SHOWN = 20


def automation() -> dg.AutomationCondition[Any]:
    """Return when it is made: eagerly, but without waiting until every tenant has been researched.

    A tenant that was added a minute ago has no research yet, and in a product some tenant always is.
    """
    return (
        dg.AutomationCondition.eager()
        .without(~dg.AutomationCondition.any_deps_missing())
        .with_label("eager, whichever tenants are there")
    )


def build_overview_asset(
    *,
    upstream: dg.AssetKey,
    fail_after: timedelta,
    warn_after: timedelta,
    group: str,
    resource_key: str = "cronless",
) -> dg.AssetsDefinition:
    """Return the asset: one row a tenant, of all tenants together.

    Args:
        upstream: The research that it follows.
        fail_after: How old it may be.
        warn_after: From which age Dagster warns.
        group: In which Dagster shows it.
        resource_key: Of the database.
    """

    @dg.asset(
        key=KEY,
        deps=[dg.AssetDep(upstream, partition_mapping=dg.AllPartitionMapping())],
        automation_condition=automation(),
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=fail_after, warn_window=warn_after),
        group_name=group,
        kinds={"python", "pandas", "postgres"},
        description="All tenants side by side: accounts, items, and last week's items against the week before.",
        metadata={"dagster/table_name": TABLE},
        required_resource_keys={resource_key},
    )
    def account_overview(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        try:
            overview = write_overview(getattr(context.resources, resource_key).engine())
        except CronlessError as error:
            raise dg.Failure(description=str(error), allow_retries=False) from error
        busiest = overview.sort_values("items_last_week", ascending=False, kind="stable").head(MAX_SHOWN)
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": len(overview),
                "dagster/table_name": TABLE,
                **{name: int(overview[name].sum()) for name in COLUMNS},
                "busiest_tenants": dg.MetadataValue.table(
                    records=[
                        dg.TableRecord({"tenant": str(tenant), **{name: int(row[name]) for name in COLUMNS}})
                        for tenant, row in busiest.iterrows()
                    ],
                    schema=dg.TableSchema(
                        columns=[
                            dg.TableColumn("tenant", "string"),
                            *(dg.TableColumn(name, "int") for name in COLUMNS),
                        ]
                    ),
                ),
            }
        )

    return account_overview
