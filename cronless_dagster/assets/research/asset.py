"""The asset `account_research`: a tenant is a partition, and time is the history of its materializations."""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import dagster as dg
from sqlalchemy import Engine

from cronless_dagster.assets.job_types import CHECK_NAME, ClaimConfig, work_on_claim
from cronless_dagster.assets.materializing import log_materializations
from cronless_dagster.assets.partitions import TENANTS, TenantError, tenant_partition
from cronless_dagster.assets.research.accounts import JOB_TYPE, items_by_tenant, tenants_with_accounts
from cronless_dagster.assets.research.backfill import refresh_tenants
from cronless_dagster.assets.research.handler import ResearchOptions
from cronless_dagster.assets.research.metadata import TABLE, tenant_metadata
from cronless_dagster.assets.research.overview_asset import build_overview_asset
from cronless_dagster.assets.research.reading import Reader
from cronless_dagster.assets.research.tally import Tally, TenantTally
from cronless_dagster.assets.summary import failed_jobs_check, summary_metadata
from cronless_dagster.engine.job_types import JobType
from cronless_dagster.engine.run_requests import JOB_TYPE_TAG, PREFIX, op_name
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.settings import Settings
from cronless_dagster.store.database import transaction

_CHECK = dg.AssetCheckSpec(
    CHECK_NAME, asset=dg.AssetKey(JOB_TYPE), description="Did all scheduled jobs of the run's batch succeed?"
)


def build_assets(
    job_type: JobType,
    *,
    research: ResearchOptions,
    fail_after: timedelta,
    warn_after: timedelta,
    resource_key: str = "cronless",
) -> list[dg.AssetsDefinition]:
    """Return the asset that the job type's runs materialize, and the one downstream of it."""
    key = dg.AssetKey(JOB_TYPE)

    # A multi-asset of one, because only a subsettable one may leave its check out; skippable, so that Dagster adds no
    # materialization of its own to those that the body logs.
    @dg.multi_asset(
        name=op_name(job_type.name),
        specs=[
            dg.AssetSpec(
                key,
                description=job_type.description,
                group_name=PREFIX,
                kinds={"python", "pandas", "postgres"},
                tags={JOB_TYPE_TAG: job_type.name},
                metadata={"dagster/table_name": TABLE},
                freshness_policy=dg.FreshnessPolicy.time_window(
                    fail_window=fail_after, warn_window=warn_after
                ),
                skippable=True,
            )
        ],
        check_specs=[_CHECK],
        can_subset=True,
        partitions_def=dg.DynamicPartitionsDefinition(name=TENANTS),
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={resource_key, *job_type.resources},
        pool=job_type.pool,
    )
    def research_run(context: dg.AssetExecutionContext, config: ClaimConfig) -> Iterator[dg.AssetCheckResult]:
        engine: Engine = getattr(context.resources, resource_key).engine()
        try:
            reader = research.reader(context.resources.fetcher.fetcher(), Settings.from_env(os.environ))
            if config.claim_id:
                yield from _claim(context, job_type, config.claim_id, engine, reader, resource_key)
            elif context.has_partition_key or context.has_partition_key_range:
                _backfill(context, job_type, engine, reader, research.weeks)
            else:
                context.log.warning(
                    "Neither a claim nor a partition was given, so there is nothing to do: choose the tenants whose"
                    " accounts are to be refreshed now; scheduled refreshes are run by the tick sensor."
                )
        except CronlessError as error:
            raise dg.Failure(description=str(error), allow_retries=False) from error

    overview = build_overview_asset(
        upstream=key, fail_after=fail_after, warn_after=warn_after, group=PREFIX, resource_key=resource_key
    )
    return [research_run, overview]


def _claim(
    context: dg.AssetExecutionContext,
    job_type: JobType,
    claim: str,
    engine: Engine,
    reader: Reader,
    resource_key: str,
) -> Iterator[dg.AssetCheckResult]:
    """Run a claimed batch, and materialize the partition of each of its tenants."""
    tally = Tally()
    counting = replace(job_type, handler=partial(job_type.handler, reader=reader, told=tally.of_job))
    report = work_on_claim(context, counting, claim, key=dg.AssetKey(JOB_TYPE), resource_key=resource_key)
    if report is None:
        return
    _materialize(context, engine, tally.tenants, {"claim": claim})
    # The run as a whole belongs to no partition.
    context.log_event(dg.AssetObservation(JOB_TYPE, metadata=summary_metadata(report)))
    yield failed_jobs_check(report, CHECK_NAME, dg.AssetKey(JOB_TYPE))


def _backfill(
    context: dg.AssetExecutionContext, job_type: JobType, engine: Engine, reader: Reader, weeks: int
) -> None:
    """Refresh the accounts of the partitions that a person chose."""
    tenants = list(context.partition_keys)
    tally = refresh_tenants(engine, reader, tenants, concurrency=job_type.concurrency, weeks=weeks)
    by_tenant = {tenant: tally.tenants.get(tenant, TenantTally()) for tenant in tenants}
    failed = [tenant for tenant, told in by_tenant.items() if told.failed and not told.refreshed]
    for tenant, told in by_tenant.items():
        if not told.failed and not told.refreshed:
            context.log.warning("Tenant %r has no accounts, so there was nothing to refresh.", tenant)
    _materialize(
        context, engine, {tenant: told for tenant, told in by_tenant.items() if tenant not in failed}, {}
    )
    if failed:
        first = by_tenant[failed[0]].failures[0]
        raise dg.Failure(
            description=f"no account of {len(failed):,} of {len(tenants):,} tenants could be refreshed: of"
            f" {failed[0]!r} for example {first.account!r}, since {first.error}",
            allow_retries=False,
        )


def _materialize(
    context: dg.AssetExecutionContext,
    engine: Engine,
    by_tenant: dict[str, TenantTally],
    more: dict[str, Any],
) -> None:
    with transaction(engine) as connection:
        items = items_by_tenant(connection, list(by_tenant))
        _add_partitions(context.instance, tenants_with_accounts(connection))
    log_materializations(
        context,
        [
            dg.AssetMaterialization(
                JOB_TYPE, partition=tenant, metadata={**tenant_metadata(told, items.get(tenant, 0)), **more}
            )
            for tenant, told in sorted(by_tenant.items())
        ],
    )


def _add_partitions(instance: dg.DagsterInstance, tenants: Sequence[str]) -> None:
    """Make the tenants known that Dagster doesn't know yet; those that can't be partitions fail in their own jobs."""
    known = set(instance.get_dynamic_partitions(TENANTS))
    missing = [tenant for tenant in tenants if tenant not in known and _can_be_partition(tenant)]
    if missing:
        instance.add_dynamic_partitions(TENANTS, missing)


def _can_be_partition(tenant: str) -> bool:
    try:
        tenant_partition(tenant)
    except TenantError:
        return False
    return True
