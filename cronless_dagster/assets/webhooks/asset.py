"""The asset `webhook_renewal`: what each batch of renewals did, and how the subscriptions stand."""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
from sqlalchemy import Connection, Engine, text

from cronless_dagster.assets.job_types import CHECK_NAME, ClaimConfig, work_on_claim
from cronless_dagster.assets.summary import failed_jobs_check, summary_metadata
from cronless_dagster.engine.job_types import JobType
from cronless_dagster.engine.run_requests import JOB_TYPE_TAG, PREFIX, op_name
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction

EXPIRES_SOON = timedelta(days=1)
TABLE = "cronless_assets.subscription"


def build_renewal_asset(
    job_type: JobType, fresh_within: timedelta, *, resource_key: str = "cronless"
) -> dg.AssetsDefinition:
    """Return the asset of webhook renewals, its key the job type's name.

    Args:
        job_type: Of `webhook_renewal`.
        fresh_within: The asset is overdue when nothing was renewed for so long.
        resource_key: Of the `CronlessResource`.
    """
    key = dg.AssetKey(job_type.name)

    @dg.multi_asset(
        name=op_name(job_type.name),
        specs=[
            dg.AssetSpec(
                key,
                description=job_type.description,
                group_name=PREFIX,
                kinds={"python", "postgres", "webhook"},
                tags={JOB_TYPE_TAG: job_type.name},
                metadata={"dagster/table_name": TABLE},
                freshness_policy=dg.FreshnessPolicy.time_window(fail_window=fresh_within),
                skippable=True,
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(
                CHECK_NAME, asset=key, description="Did all hubs of the run's batch take their requests?"
            )
        ],
        can_subset=True,
        required_resource_keys={resource_key, *job_type.resources},
        pool=job_type.pool,
    )
    def run(context: dg.AssetExecutionContext, config: ClaimConfig) -> Iterator[dg.MaterializeResult[Any]]:
        report = work_on_claim(context, job_type, config.claim_id, key=key, resource_key=resource_key)
        if report is None:
            return
        engine: Engine = getattr(context.resources, resource_key).engine()
        with transaction(engine) as connection:
            counts = count_subscriptions(connection)
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={**summary_metadata(report), **counts},
            check_results=[failed_jobs_check(report, CHECK_NAME, key)],
        )

    return run


def count_subscriptions(connection: Connection) -> dict[str, int]:
    """Return how the subscriptions stand.

    `active` within a lease, `expiring_within_a_day` of those, `expired` though they are wanted, `unverified` ones
    that never had a lease, `denied` by their hub, and `ignored_deliveries` that carried no valid signature.
    """
    now = current_time(connection)
    row = connection.execute(
        text(
            "SELECT count(*) FILTER (WHERE wanted AND expires_at > :now) AS active,"
            " count(*) FILTER (WHERE wanted AND expires_at > :now AND expires_at <= :soon) AS expiring_within_a_day,"
            " count(*) FILTER (WHERE wanted AND expires_at <= :now) AS expired,"
            " count(*) FILTER (WHERE status IN ('new', 'requested') AND expires_at IS NULL) AS unverified,"
            " count(*) FILTER (WHERE status = 'denied') AS denied,"
            " CAST(coalesce(sum(ignored), 0) AS bigint) AS ignored_deliveries"
            " FROM (SELECT *, status IN ('requested', 'active') AS wanted FROM cronless_assets.subscription) AS one"
        ),
        {"now": now, "soon": now + EXPIRES_SOON},
    ).one()
    return dict(row._mapping)  # noqa: SLF001  # SQLAlchemy's public name, underscore and all
