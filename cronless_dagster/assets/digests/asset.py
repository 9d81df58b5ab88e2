"""The asset `email_digest`: one partition for each local date, materialized by claimed batches and by backfills."""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from cronless_dagster.assets.digests.backfill import Shown, digests_of, send_missing
from cronless_dagster.assets.digests.sending import Digests
from cronless_dagster.assets.digests.tally import OUTCOMES, DateTally, Tally
from cronless_dagster.assets.job_types import CHECK_NAME, ClaimConfig, work_on_claim
from cronless_dagster.assets.materializing import log_materializations
from cronless_dagster.assets.summary import failed_jobs_check, failures_table, lateness_metadata
from cronless_dagster.engine.job_types import JobType
from cronless_dagster.engine.run_requests import JOB_TYPE_TAG, PREFIX, op_name

TABLE = "cronless_assets.digest_delivery"
MAX_ROWS = 100
MAX_PREVIEWS = 3
MAX_ERROR = 300
_COLUMNS = dg.TableSchema(
    columns=[
        dg.TableColumn("tenant", "string"),
        dg.TableColumn("user", "string"),
        dg.TableColumn("status", "string"),
        dg.TableColumn("subject", "string"),
        dg.TableColumn("items", "int", description="New items; empty where nobody looked"),
        dg.TableColumn("occurrence", "string", description="UTC"),
        dg.TableColumn("error", "string"),
    ]
)


class DigestConfig(ClaimConfig):
    """What a run is told: a claim by the sensor, or what a backfill may do."""

    send_missing: bool = Field(
        default=False,
        description=(
            "In a backfill: send the digests of these dates that were never sent or were refused. What was sent, or may"
            " have been, is never sent again."
        ),
    )


def build_digest_asset(
    job_type: JobType,
    digests: Digests,
    *,
    first_date: str,
    fresh_within: timedelta | None,
    resource_key: str = "cronless",
) -> dg.AssetsDefinition:
    """Return the asset of e-mail digests, its key the job type's name.

    A claimed batch sends and materializes each local date that its occurrences fall on. A backfill of dates composes
    and shows what was or would be sent.

    Args:
        job_type: Of `email_digest`.
        digests: Its handler.
        first_date: The first partition, as YYYY-MM-DD.
        fresh_within: The asset is overdue when it wasn't materialized for so long; None: it never is.
        resource_key: Of the `CronlessResource`.
    """
    key = dg.AssetKey(job_type.name)
    freshness = dg.FreshnessPolicy.time_window(fail_window=fresh_within) if fresh_within is not None else None

    @dg.multi_asset(
        name=op_name(job_type.name),
        specs=[
            dg.AssetSpec(
                key,
                description=job_type.description,
                group_name=PREFIX,
                kinds={"python", "postgres", "email"},
                tags={JOB_TYPE_TAG: job_type.name},
                metadata={"dagster/table_name": TABLE},
                freshness_policy=freshness,
                skippable=True,
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(
                CHECK_NAME, asset=key, description="Did all digests of the run's batch end well?"
            )
        ],
        # Tomorrow's partition too, and UTC's evening is already the day after in zones up to 14 hours ahead.
        partitions_def=dg.DailyPartitionsDefinition(start_date=first_date, end_offset=2),
        backfill_policy=dg.BackfillPolicy.single_run(),
        can_subset=True,
        required_resource_keys={resource_key, *job_type.resources},
        pool=job_type.pool,
    )
    def run(context: dg.AssetExecutionContext, config: DigestConfig) -> Iterator[dg.AssetCheckResult]:
        if context.has_partition_key or context.has_partition_key_range:
            engine = getattr(context.resources, resource_key).engine()
            dates = [date.fromisoformat(one) for one in context.partition_keys]
            shown = digests_of(engine, digests, job_type.name, dates)
            if config.send_missing:
                mailer = digests.mailer_in(context)
                shown = send_missing(engine, digests, mailer, shown, context.run.run_id)
            log_materializations(context, [_backfilled(key, day, shown) for day in dates])
            return
        tally = Tally()
        watched = replace(job_type, handler=tally.watching(digests))
        report = work_on_claim(context, watched, config.claim_id, key=key, resource_key=resource_key)
        if report is None:
            return
        extra: dict[str, Any] = {"claim": str(report.claim_id)}
        if report.failures:
            extra["failed_jobs"] = failures_table(report.failures)
        log_materializations(
            context, [_claimed(key, day, one, extra) for day, one in sorted(tally.dates.items())]
        )
        yield failed_jobs_check(report, CHECK_NAME, key)

    return run


def _claimed(key: dg.AssetKey, day: date, tally: DateTally, extra: dict[str, Any]) -> dg.AssetMaterialization:
    counts = {name: tally.counts[name] for name in OUTCOMES}
    rows: dict[str, Any] = {"dagster/row_count": tally.counts.total(), "dagster/table_name": TABLE}
    return dg.AssetMaterialization(
        key,
        partition=day.isoformat(),
        metadata={**counts, **rows, **lateness_metadata(tally.lateness), **extra},
    )


def _backfilled(key: dg.AssetKey, day: date, shown: Sequence[Shown]) -> dg.AssetMaterialization:
    of_day = [one for one in shown if one.local_date == day]
    counts = {
        **dict.fromkeys(("sent", "nothing_new", "uncertain", "refused", "missing", "planned", "unusable"), 0)
    }
    counts |= Counter(one.status for one in of_day)
    previews = [one.digest.text for one in of_day if one.digest is not None][:MAX_PREVIEWS]
    metadata: dict[str, Any] = {
        **counts,
        "dagster/row_count": len(of_day),
        "dagster/table_name": TABLE,
        "digests": dg.MetadataValue.table(
            records=[_record(one) for one in of_day[:MAX_ROWS]], schema=_COLUMNS
        ),
    }
    if previews:
        # Indented by four: whatever feeds say stays text in Markdown.
        blocks = ["".join(f"    {line}\n" for line in text.splitlines()) for text in previews]
        metadata["previews"] = dg.MetadataValue.md("\n---\n\n".join(blocks))
    return dg.AssetMaterialization(key, partition=day.isoformat(), metadata=metadata)


def _record(one: Shown) -> dg.TableRecord:
    return dg.TableRecord(
        {
            "tenant": one.tenant_id,
            "user": one.user,
            "status": one.status,
            "subject": one.digest.subject if one.digest is not None else "",
            "items": len(one.items) if one.items is not None else None,
            "occurrence": f"{one.occurrence:%Y-%m-%d %H:%M:%SZ}" if one.occurrence is not None else "",
            "error": (one.error or "")[:MAX_ERROR],
        }
    )
