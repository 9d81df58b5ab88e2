"""An asset of the team's own, with a partition for each tenant."""

import dagster as dg

tenants = dg.DynamicPartitionsDefinition(name="tenant")


@dg.asset(partitions_def=tenants)
def tenant_report(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """One tenant's report; people backfill it in the UI as any other asset."""
    return dg.MaterializeResult(metadata={"tenant": context.partition_key})
