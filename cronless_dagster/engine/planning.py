"""The tick's planning steps: rows without an instant, reported outcomes, rows planned with other zone data."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from cronless_dagster.scheduling.models import Outcome, Plan, RetryPolicy
from cronless_dagster.scheduling.planner import plan_first, plan_next
from cronless_dagster.scheduling.schedules import parse_schedule
from cronless_dagster.scheduling.zones import TZDATA_VERSION, utc
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.executions import close_complete, count_outcomes, counted
from cronless_dagster.store.history import Missed, record_missed, with_partition
from cronless_dagster.store.planning import take_reported, take_unplanned, write_plans
from cronless_dagster.store.progress import write_progress
from cronless_dagster.store.replan import clear_other_zone_data
from cronless_dagster.store.results import Result, finish_jobs
from cronless_dagster.store.rows import claimed_job, planned_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobTypes
    from cronless_dagster.engine.report import TickReport
    from cronless_dagster.scheduling.shards import IdRange

PLAN_BATCH = 2_000
ZONE_DATA_BATCH = 5_000
_DEFAULT_RETRY = RetryPolicy()


def plan_rows(
    engine: Engine,
    report: TickReport,
    ids: IdRange,
    now: datetime | None,
    more: Callable[[], bool],
    job_types: JobTypes | None = None,
) -> None:
    """Plan rows without an instant (new, edited, resumed) in batches, while `more` allows.

    `job_types` give the delay of a retry that was waiting, where the row leaves it open.
    """
    while more():

        def write() -> tuple[int, int]:
            with transaction(engine) as connection:
                at = current_time(connection, now)
                rows = take_unplanned(connection, ids, PLAN_BATCH)
                plans = [
                    (row, _first_plan(row, job_types, at))
                    # A schedule may take its time to compute: what isn't planned in time stays as it is.
                    for row in takewhile(lambda _: more(), rows)
                ]
                write_plans(connection, [(row.id, plan) for row, plan in plans])
                record_missed(
                    connection,
                    [
                        Missed(row.id, row.tenant_id, row.job_type, plan.missed)
                        for row, plan in plans
                        if plan.missed is not None
                    ],
                    at,
                )
                return len(plans), sum(plan.status == "INVALID" for _, plan in plans)

        rows, invalid = with_partition(engine, now, write)
        report.planned += rows - invalid
        report.invalid += invalid
        if rows < PLAN_BATCH:
            return


def _first_plan(row: Any, job_types: JobTypes | None, now: datetime) -> Plan:
    job_type = job_types.get(row.job_type) if job_types is not None else None
    plan = plan_first(planned_job(row, job_type.retry if job_type else _DEFAULT_RETRY), now)
    instant = plan.scheduled_for
    # A retry that waits is the same occurrence still.
    if instant is None or instant > now or row.last_finished_at is None or row.attempt > 0:
        return plan
    if parse_schedule(row.schedule, row.timezone, row.dst_policy).kind != "once":
        return plan
    if instant > row.serving_at and now <= instant + timedelta(seconds=row.misfire_grace_seconds):
        # A new instant that passed while the edit waited for this tick.
        return plan
    # Its one occurrence has ended: an edit of its zone or jitter must not fire it again.
    ended: Literal["DONE", "FAILED"] = "DONE" if row.last_outcome == "success" else "FAILED"
    return replace(
        plan, status=ended, next_run_at=None, scheduled_for=None, reason="its one occurrence has ended"
    )


def finish_reported(
    engine: Engine,
    report: TickReport,
    job_types: JobTypes,
    ids: IdRange,
    now: datetime | None,
    more: Callable[[], bool],
) -> None:
    """Plan the jobs whose workers, in any language, reported an outcome through `cronless_finish`."""
    while more():

        def write() -> int:
            with transaction(engine) as connection:
                at = current_time(connection, now)
                rows = take_reported(connection, ids, PLAN_BATCH)
                results = [_reported(row, job_types, at) for row in rows]
                finish_jobs(connection, results, at)
                counts = counted((result.job.claim_id, result.error is None) for result in results)
                count_outcomes(connection, counts, at)
                close_complete(connection, counts, at)
                return len(rows)

        rows = with_partition(engine, now, write)
        report.finished += rows
        if rows < PLAN_BATCH:
            return


def _reported(row: Any, job_types: JobTypes, now: datetime) -> Result:
    job_type = job_types.get(row.job_type)
    job = claimed_job(row, job_type.retry if job_type else _DEFAULT_RETRY, row.claim_id)
    told = row.report
    if told["outcome"] == "success":
        next_at = told.get("next_at")
        outcome = Outcome("success", next_at=None if next_at is None else _instant(next_at))
    else:
        outcome = Outcome("failure", error=told.get("error") or "the worker gave no reason")
    return Result(job, plan_next(job.plan, outcome, now), outcome.error, None)


def _instant(text: str) -> datetime | None:
    try:
        return utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        # 'infinity', or a year that no datetime holds: the fallback plans, as after any other wrong answer.
        return None


def follow_zone_data(
    engine: Engine, report: TickReport, progress: dict[str, Any], ids: IdRange, now: datetime | None
) -> None:
    """After a change of the zone data, send a batch of rows planned with the old ones back to the planner.

    Only ever forward: an older node beside a newer one leaves the rows alone. Where the sweep stands is kept
    for each part of the id space, so that shards sweep side by side.
    """
    key = f"zone_data:{ids.low}:{ids.high}"
    state = progress.get(key)
    if state is not None and (state["version"] > TZDATA_VERSION or _swept(state)):
        return
    if not any(known.startswith("zone_data:") for known in progress):
        # The first tick of all: nothing was planned with other zone data.
        with transaction(engine) as connection:
            at = current_time(connection, now)
            write_progress(connection, key, {"version": TZDATA_VERSION, "after": None}, at)
        return
    with transaction(engine) as connection:
        at = current_time(connection, now)
        after = ids.low if state is None or state["version"] != TZDATA_VERSION else UUID(state["after"])
        last, cleared = clear_other_zone_data(
            connection, TZDATA_VERSION, after, ZONE_DATA_BATCH, at, up_to=ids.high
        )
        value = {"version": TZDATA_VERSION, "after": None if last is None else str(last)}
        write_progress(connection, key, value, at)
    report.replanned_zones += cleared


def _swept(state: dict[str, Any]) -> bool:
    return state["version"] == TZDATA_VERSION and state["after"] is None
