"""Results: planned and written in batches, in threads of their own, beside the handlers."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from cronless_dagster.engine.finishing import Finisher, Written
from cronless_dagster.scheduling.planner import plan_next
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import RETRY_SECONDS, may_pass, transaction
from cronless_dagster.store.errors import ClaimLost, DatabaseUnavailable
from cronless_dagster.store.executions import finish_started
from cronless_dagster.store.history import with_partition
from cronless_dagster.store.results import Result
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Engine

    from cronless_dagster.engine.handlers import Tried
    from cronless_dagster.store.rows import ClaimedJob
    from cronless_dagster.worker.counts import Tally
    from cronless_dagster.worker.started import StartedJobs

logger = logging.getLogger(__name__)

BATCH_SIZE = 1_000
FLUSH_SECONDS = 0.2


class Completer:
    """Writes what handlers have done; a batch is planned while the one before is on its way.

    A database that is away is asked again for as long as the worker runs: what waits is bounded by what was started,
    and the finish fence refuses what was taken over meanwhile.
    """

    def __init__(self, engine: Engine, started: StartedJobs, tally: Tally, now: datetime | None) -> None:
        """Prepare."""
        self._engine, self._started, self._tally, self._now = engine, started, tally, now
        self._tried: deque[Tried] = deque()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="completer", daemon=True)
        self._finisher = Finisher(
            self._write,
            self._accepted,
            _no_claim,
            lost=lambda: False,
            batch_size=BATCH_SIZE,
            patience=math.inf,
        )
        self.broken: BaseException | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def add(self, tried: Tried, *, at_once: bool = False) -> None:
        """Take a finished try over, `at_once` where somebody waits for it to be written; from any thread."""
        self._tried.append(tried)
        if at_once or len(self._tried) >= BATCH_SIZE:
            self._wake.set()

    def close(self, seconds: float) -> int:
        """Write what is left within so many seconds; return how many results could not be written."""
        self._closing.set()
        self._wake.set()
        self._thread.join(max(seconds, 0.0))
        self._finisher.close()
        return len(self._tried) + self._finisher.unwritten

    def _run(self) -> None:
        try:
            while self._tried or self._finisher.unwritten or not self._closing.is_set():
                if self._closing.is_set():
                    time.sleep(FLUSH_SECONDS / 10)
                else:
                    self._wake.wait(FLUSH_SECONDS)
                    self._wake.clear()
                self._flush()
        except BaseException as error:  # noqa: BLE001 - told with its traceback
            event(logger, "worker.broken", logging.CRITICAL, exc_info=True)
            self.broken = error

    def _flush(self) -> None:
        while batch := [self._tried.popleft() for _ in range(min(len(self._tried), BATCH_SIZE))]:
            try:
                results = self._planned(batch)
            except (DatabaseUnavailable, SQLAlchemyError) as error:
                if not may_pass(error):
                    raise
                self._tried.extendleft(reversed(batch))
                time.sleep(RETRY_SECONDS)
                return
            self._finisher.add(results)
            self._poll(catch_up=True)
        self._poll()
        if not self._tried:
            # Nothing else to do meanwhile.
            self._poll()

    def _poll(self, *, catch_up: bool = False) -> None:
        try:
            if catch_up:
                self._finisher.catch_up()
            else:
                self._finisher.poll()
        except Exception:  # noqa: BLE001 - told with its traceback
            event(logger, "results.tried_apart", logging.ERROR, exc_info=True)
            self._give_up([result.job for result in self._finisher.apart()])

    def _planned(self, batch: Sequence[Tried]) -> list[Result]:
        ours = [one for one in batch if self._started.is_current(one.job)]
        self._tally.add("discarded", len(batch) - len(ours))
        at = self._now
        if at is None and ours:
            with transaction(self._engine) as connection:
                at = current_time(connection)
        return [result for one in ours if at is not None and (result := self._plan(one, at)) is not None]

    def _plan(self, one: Tried, at: datetime) -> Result | None:
        try:
            plan = plan_next(one.job.plan, one.outcome, at)
        except Exception:  # noqa: BLE001 - told with its traceback
            # A schedule that the planner stumbles over costs its own job a lease, and no other job anything.
            event(logger, "results.not_planned", logging.ERROR, exc_info=True, jobs=1, job=one.job.id)
            self._give_up([one.job])
            return None
        return Result(one.job, plan, one.outcome.error, one.started_at)

    def _give_up(self, jobs: Sequence[ClaimedJob]) -> None:
        self._tally.add("unwritten", len(jobs))
        self._started.forget(jobs)

    def _write(self, results: Sequence[Result]) -> Written:
        def write() -> Written:
            with transaction(self._engine) as connection:
                return Written(*finish_started(connection, results, current_time(connection, self._now)))

        return with_partition(self._engine, self._now, write)

    def _accepted(self, results: Sequence[Result], accepted: set[UUID]) -> None:
        self._started.forget(result.job for result in results)
        written = [result for result in results if result.job.id in accepted]
        self._tally.ended((one.job.job_type, one.plan.recorded == "success") for one in written)
        self._tally.add("discarded", len(results) - len(written))
        for one in written:
            if one.plan.recorded != "success":
                event(
                    logger,
                    "job.ended",
                    job=one.job.id,
                    job_type=one.job.job_type,
                    outcome=one.plan.recorded,
                    tries=one.job.tries,
                    error=(one.error or "no reason given").partition("\n")[0],
                )


def _no_claim(_results: Sequence[Any]) -> ClaimLost:
    return ClaimLost("a worker holds jobs and no claim, which can't be lost as a whole")
