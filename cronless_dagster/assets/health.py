"""The asset `schedule_health`: how the schedule does, each quarter of an hour, and the checks that say what is wrong.

By Dagster's own automation and not by the tick it watches: where ticks end, this goes on and shows it. Where the whole
daemon ends, the asset's freshness policy does.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a body as classes, not as texts.

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
from sqlalchemy.exc import SQLAlchemyError

from cronless_dagster.assets.health_report import Limits, check_results, health_metadata
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.health import read_health

HEALTH_KEY = dg.AssetKey("schedule_health")
CHECKS = {
    "nothing_stuck": "Has every claimed job a holder, or been rescued from one that died?",
    "lateness_within_limit": "Do jobs start soon after they become due?",
    "no_type_failing": "Does every job type succeed in most of its tries?",
    "no_row_invalid": "Can every row be used as it is?",
}


def build_health_asset(
    *,
    resource_key: str = "cronless",
    cron_schedule: str = "*/15 * * * *",
    lateness_limit: timedelta = timedelta(minutes=10),
    failing_share: float = 0.5,
    failing_tries: int = 5,
    stuck_after: timedelta = timedelta(minutes=5),
    fresh_within: timedelta = timedelta(minutes=45),
) -> dg.AssetsDefinition:
    """Return the asset and its checks; one computation.

    Args:
        resource_key: Where the code location has its `CronlessResource`.
        cron_schedule: When it is made (UTC), by `AutomationCondition.on_cron`.
        lateness_limit: How late a job may start before `lateness_within_limit` fails.
        failing_share: Which share of a job type's tries of the last hour may fail, 0 to 1.
        failing_tries: With fewer tries in that hour a type isn't judged.
        stuck_after: How long after its lease's end a claim counts as stuck. Each tick rescues such claims.
        fresh_within: Without a materialization for so long Dagster shows the asset as not fresh; after two thirds of
            it, it warns.

    Raises:
        ValueError: A limit that can't be used.
    """
    if not 0 <= failing_share <= 1:
        raise ValueError(f"failing_share is {failing_share}: give a share from 0 to 1, such as 0.5")
    if min(lateness_limit, stuck_after) < timedelta(0):
        raise ValueError("lateness_limit and stuck_after must not be negative: give a timedelta of minutes")
    limits = Limits(lateness_limit, failing_share, failing_tries)

    @dg.multi_asset(
        name="schedule_health",
        specs=[
            dg.AssetSpec(
                HEALTH_KEY,
                description=(
                    "How the schedule does: what is due, late, stuck and failing, and in which minutes of the next day"
                    " most jobs become due."
                ),
                group_name="cronless",
                kinds={"python", "postgres"},
                automation_condition=dg.AutomationCondition.on_cron(cron_schedule),
                freshness_policy=dg.FreshnessPolicy.time_window(
                    fail_window=fresh_within, warn_window=fresh_within * 2 / 3
                ),
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(name, asset=HEALTH_KEY, description=description)
            for name, description in CHECKS.items()
        ],
        required_resource_keys={resource_key},
    )
    def schedule_health(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        try:
            with transaction(getattr(context.resources, resource_key).engine()) as connection:
                health = read_health(connection, current_time(connection), stuck_after=stuck_after)
        except CronlessError as error:
            raise dg.Failure(description=str(error)) from error
        except SQLAlchemyError as error:
            said = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
            raise dg.Failure(
                description=f"the database refused to say how the schedule does ({said.splitlines()[0]})"
            ) from error
        yield dg.MaterializeResult(
            asset_key=HEALTH_KEY,
            metadata=health_metadata(health),
            check_results=check_results(health, limits, HEALTH_KEY),
        )

    return schedule_health
