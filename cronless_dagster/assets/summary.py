"""What people see of a run: numbers that the UI plots, and a table of the jobs that failed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cronless_dagster.engine.running import ClaimReport, FailedJob

MAX_ERROR_CHARACTERS = 300

_COLUMNS = dg.TableSchema(
    columns=[
        # What a person looks for first: the UI shows few columns without scrolling.
        dg.TableColumn("tenant", "string"),
        dg.TableColumn("name", "string"),
        dg.TableColumn("error", "string"),
        dg.TableColumn("follows", "string", description="What happens to the job next"),
        dg.TableColumn("tries", "int", description="Tries of this occurrence, this one included"),
        dg.TableColumn("scheduled_for", "string", description="The occurrence, UTC"),
        dg.TableColumn("job_id", "string"),
    ]
)


def summary_metadata(report: ClaimReport) -> dict[str, Any]:
    """Return the metadata of a claim's materialization: counts of jobs, seconds, rates."""
    metadata: dict[str, Any] = {
        "claimed": report.job_count,
        "succeeded": report.succeeded,
        "failed": report.failed,
        "retried": report.recorded.get("failure", 0),
        "exhausted": report.recorded.get("exhausted", 0),
        "superseded": report.recorded.get("superseded", 0),
        "discarded": report.discarded,
        "paused": report.paused,
        "dagster/row_count": report.finished,
        "seconds": report.seconds,
        "jobs_per_second": round(report.finished / report.seconds, 1) if report.seconds else 0.0,
        "claim": str(report.claim_id),
    }
    metadata |= lateness_metadata(report.lateness)
    if report.failures:
        metadata["failed_jobs"] = failures_table(report.failures)
    return metadata


def lateness_metadata(lateness: Sequence[float]) -> dict[str, Any]:
    """Return how late jobs began: seconds, by percentile; nothing where none is known."""
    if not lateness:
        return {}
    ordered = sorted(lateness)
    return {
        "lateness_p50_seconds": round(_quantile(ordered, 0.5), 3),
        "lateness_p95_seconds": round(_quantile(ordered, 0.95), 3),
        "lateness_max_seconds": round(ordered[-1], 3),
    }


def failures_table(failures: list[FailedJob]) -> dg.TableMetadataValue:
    """Return the failed jobs as a table; errors are cut, since an event is kept for a long time."""
    return dg.MetadataValue.table(
        records=[
            dg.TableRecord(
                {
                    "tenant": one.tenant_id,
                    "name": one.name,
                    "error": one.error[:MAX_ERROR_CHARACTERS],
                    "follows": one.follows,
                    "tries": one.tries,
                    "scheduled_for": f"{one.scheduled_for:%Y-%m-%d %H:%M:%SZ}",
                    "job_id": str(one.job_id),
                }
            )
            for one in failures
        ],
        schema=_COLUMNS,
    )


def failed_jobs_check(report: ClaimReport, name: str, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Return the check of a batch: a warning where jobs failed, since the run itself did its work."""
    by_outcome = {outcome: count for outcome, count in report.recorded.items() if outcome != "success"}
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=key,
        passed=report.failed == 0,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{report.failed:,} of {report.finished:,} jobs failed" if report.failed else None,
        metadata={"failed": report.failed, "finished": report.finished, **by_outcome},
    )


def _quantile(ordered: list[float], part: float) -> float:
    """Return the smallest value with at least `part` of all values at or below it."""
    return ordered[max(math.ceil(part * len(ordered)) - 1, 0)]
