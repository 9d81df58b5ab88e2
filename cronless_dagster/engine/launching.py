"""Handing claims over to an executor that makes a run whenever it is asked: whoever asks must have won the claim.

A sensor's run keys let Dagster make one run of a claim however often it is handed over; a request from outside has no
such key. So the hand-over is taken by compare-and-swap, and no one else takes it before the run must have been seen.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from cronless_dagster.engine.report import first_line
from cronless_dagster.engine.run_requests import dagster_job_name
from cronless_dagster.engine.runs import LaunchFailed
from cronless_dagster.store import claims as store
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.errors import DatabaseNotMigrated, DatabaseUnavailable
from cronless_dagster.telemetry.events import event
from cronless_dagster.telemetry.tracing import span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cronless_dagster.engine.claim_step import Ticking
    from cronless_dagster.engine.runs import HandOver, Launcher

logger = logging.getLogger(__name__)

HAND_OVER_PATIENCE = timedelta(seconds=90)
"""Within it a run that was asked for is seen by the next question for runs, or there is none: a launcher gives up far
sooner, and a sensor's requests of one tick are made in less."""


def launch(tick: Ticking, wanted: Sequence[HandOver], launcher: Launcher) -> None:
    """Launch a run of each claim whose hand-over is ours to take; those that were launched are the report's.

    One that can't be launched is in the report's errors, and keeps no other waiting.
    """
    for one in wanted:
        if not tick.may_claim():
            break
        try:
            if _taken(tick, one):
                _launched(tick, one, launcher)
        except (DatabaseUnavailable, DatabaseNotMigrated):
            raise
        except Exception as error:  # noqa: BLE001 - told with its traceback; whether there is a run, the next tick sees
            event(logger, "claim.not_launched", logging.ERROR, exc_info=True, claim=one.claim_id, made=True)
            tick.report.errors.append(f"claim {one.claim_id}: {first_line(error)}")


def _taken(tick: Ticking, one: HandOver) -> bool:
    with transaction(tick.engine) as connection:
        now = current_time(connection, tick.now)
        return store.take_hand_over(connection, one.claim_id, one.dispatch, now, HAND_OVER_PATIENCE)


def _launched(tick: Ticking, one: HandOver, launcher: Launcher) -> None:
    report, job_type = tick.report, tick.job_types[one.job_type]
    try:
        with span("launch", job_type=one.job_type):
            run_id = launcher.launch(one, job_type)
    except LaunchFailed as error:
        event(logger, "claim.not_launched", logging.WARNING, claim=one.claim_id, made=error.made, error=error)
        report.errors.append(f"claim {one.claim_id} ({dagster_job_name(one.job_type)}): {error}")
        if not error.made:
            # Like a run that failed before it began: the next one is asked for later and later.
            with transaction(tick.engine) as connection:
                store.hand_over_again(connection, one.claim_id, one.dispatch)
        return
    report.hand_over.append(one)
    report.launched[one.job_type] = report.launched.get(one.job_type, 0) + 1
    with transaction(tick.engine) as connection:
        now = current_time(connection, tick.now)
        store.mark_submitted(connection, one.claim_id, run_id, now, dispatch=one.dispatch)
