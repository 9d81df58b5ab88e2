"""Running claims in the calling process: the command line's tick on a laptop, without Dagster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import uuid4

from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.engine.running import ClaimReport, run_claim
from cronless_dagster.engine.tick import tick
from cronless_dagster.scheduling.shards import FULL, IdRange
from cronless_dagster.store.errors import ClaimLost
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.engine.queueing import Queue
    from cronless_dagster.engine.report import TickReport


logger = logging.getLogger(__name__)


def tick_and_run(
    engine: Engine,
    job_types: JobTypes,
    *,
    now: datetime | None = None,
    ids: IdRange = FULL,
    history_days: int = 30,
    queue: Queue | None = None,
) -> tuple[TickReport, list[ClaimReport]]:
    """Tick once and run what was claimed, one claim after the other.

    The claims are made for this route alone: Dagster's sensor leaves them to their lease, and a process that
    dies here loses nothing. Users' own Dagster jobs are left to the sensor. Where a `queue` is given, job types of
    that route are published for its workers.
    """
    job_types = JobTypes(tuple(one for one in job_types if one.dagster_job is None))
    report = tick(engine, job_types, now=now, ids=ids, route="local", history_days=history_days, queue=queue)
    ran = []
    for one in report.hand_over:
        try:
            ran.append(run_claim(engine, job_types, one.claim_id, execution_id=uuid4(), now=now))
        except ClaimLost as error:
            event(logger, "claim.lost", logging.WARNING, claim=one.claim_id, error=error)
            ran.append(ClaimReport(one.claim_id, one.job_type, "lost", str(error), one.job_count))
    return report, ran
