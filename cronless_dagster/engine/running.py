"""Running a claim: fence it, load its jobs, call the handler, finish in batches, close it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from uuid import UUID

from sqlalchemy import Engine, text

from cronless_dagster.engine.finishing import LEAVE_SECONDS, Finisher, Written
from cronless_dagster.engine.handlers import HandlerContext, Tried, Tries
from cronless_dagster.engine.lease import Heartbeat
from cronless_dagster.scheduling.planner import plan_next
from cronless_dagster.store import claims as store
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import engine_for_threads, patiently, transaction
from cronless_dagster.store.errors import ClaimLost
from cronless_dagster.store.history import with_partition
from cronless_dagster.store.loading import load_page
from cronless_dagster.store.results import Result, finish_jobs, lock_finished
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from cronless_dagster.engine.job_types import JobType, JobTypes
    from cronless_dagster.store.rows import ClaimedJob

PAGE_SIZE = 2_000
FINISH_BATCH = 1_000
FINISH_SECONDS = 2.0
MAX_SHOWN_FAILURES = 100

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

RunStatus = Literal["done", "closed", "held", "unknown", "lost"]


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A failure as people see it in the run's metadata."""

    job_id: UUID
    tenant_id: str
    name: str
    scheduled_for: datetime
    tries: int
    error: str
    follows: str


@dataclass(slots=True)
class ClaimReport:
    """What a run did with its claim.

    Attributes:
        status: "done"; "closed" or "held": there was nothing to do, the claim had ended or has another holder;
            "unknown": there is no such claim; "lost": the claim was taken away in the middle.
        recorded: Finished tries by what was recorded (success, failure, exhausted, superseded).
        discarded: Results that were not accepted, since the job or the claim was no longer ours.
        lateness: Seconds from due to start, of each finished try.
    """

    claim_id: UUID
    job_type: str
    status: RunStatus = "done"
    message: str = ""
    job_count: int = 0
    recorded: dict[str, int] = field(default_factory=dict)
    paused: int = 0
    discarded: int = 0
    lateness: list[float] = field(default_factory=list)
    failures: list[FailedJob] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def finished(self) -> int:
        """Tries whose result was accepted."""
        return sum(self.recorded.values())

    @property
    def succeeded(self) -> int:
        """Accepted successes."""
        return self.recorded.get("success", 0)

    @property
    def failed(self) -> int:
        """Accepted results that are no success."""
        return self.finished - self.succeeded


def run_claim(
    engine: Engine,
    job_types: JobTypes,
    claim_id: UUID,
    *,
    execution_id: UUID,
    run_id: str | None = None,
    now: datetime | None = None,
    log: logging.Logger | None = None,
    progress: Callable[[ClaimReport], None] | None = None,
    dagster: Any = None,
) -> ClaimReport:
    """Run the jobs of a claim and plan their next occurrences.

    One failing job never fails its neighbours. Interrupted by an exception (a canceled run), what is finished is
    recorded first. A claim that has ended or is held by another execution is reported, not an error.

    Args:
        engine: The store's engine.
        job_types: Where the claim's handler is declared.
        claim_id: The claim; its id is the fencing token.
        execution_id: This holder's own id; the same one may call again after it lost an answer.
        run_id: The Dagster run, for the history.
        now: An instant in place of the clock; only where the clock is virtual.
        log: Where handlers log.
        progress: Called after each finished batch.
        dagster: The Dagster run's context, for handlers.

    Raises:
        UnknownJobType: This code doesn't declare the claim's type; nothing was started.
        ClaimLost: The claim was taken away; what was not accepted is counted in the log and discarded.
    """
    started = time.monotonic()
    with transaction(engine) as connection:
        found = connection.execute(
            text(
                "SELECT job_type, state, run_id, execution_id, close_reason FROM cronless.job_claim WHERE id = :id"
            ),
            {"id": claim_id},
        ).one_or_none()
    if found is None:
        return ClaimReport(
            claim_id, "", "unknown", f"there is no claim {claim_id}: its history was pruned, or it never was"
        )
    job_type = job_types[found.job_type]
    with transaction(engine) as connection:
        at = current_time(connection, now)
        claim = store.start_claim(connection, claim_id, execution_id, run_id, at)
        if claim is None:
            return _refused(connection, claim_id, found.job_type)
    at_once = job_type.concurrency if job_type.takes == "job" else 1
    with (
        engine_for_threads(engine, at_once) as theirs,
        Heartbeat(engine, claim_id, execution_id, claim.lease_seconds, now) as heartbeat,
    ):
        context = HandlerContext(theirs, log or logging.getLogger(job_type.name), at, run_id, dagster)
        lost = heartbeat.lost.is_set
        run = _Run(engine, job_type, claim, execution_id, run_id, now, context, lost=lost, progress=progress)
        try:
            run.all_pages()
        finally:
            run.finisher.close()
    run.report.seconds = round(time.monotonic() - started, 3)
    return run.report


def _refused(connection: Any, claim_id: UUID, job_type: str) -> ClaimReport:
    row = connection.execute(
        text("SELECT state, run_id, close_reason, job_count FROM cronless.job_claim WHERE id = :id"),
        {"id": claim_id},
    ).one()
    if row.state == "CLOSED":
        message = f"claim {claim_id} is closed ({row.close_reason}): its jobs ran, or run under other claims"
        return ClaimReport(claim_id, job_type, "closed", message, row.job_count)
    message = f"claim {claim_id} is held by run {row.run_id}: nothing to do here"
    return ClaimReport(claim_id, job_type, "held", message, row.job_count)


class _Run:
    """One holder's way through a claim."""

    def __init__(
        self,
        engine: Engine,
        job_type: JobType,
        claim: store.Claim,
        execution_id: UUID,
        run_id: str | None,
        now: datetime | None,
        context: HandlerContext,
        *,
        lost: Callable[[], bool],
        progress: Callable[[ClaimReport], None] | None,
    ) -> None:
        self.engine, self.job_type, self.claim, self.now, self.context = engine, job_type, claim, now, context
        self.execution_id, self.run_id, self.lost, self.progress = execution_id, run_id, lost, progress
        self.report = ClaimReport(claim.id, job_type.name, job_count=claim.job_count)
        self._tried: list[Tried] = []
        self._flushed_at = time.monotonic()
        self.finisher = Finisher(
            self._write,
            self._accepted,
            self._discard,
            lost=lost,
            batch_size=FINISH_BATCH,
            patience=claim.lease_seconds,
        )

    def all_pages(self) -> None:
        """Run page after page until the claim holds no more unfinished rows, then close it."""
        # A batch handler is given the whole claim.
        page_size = self.job_type.batch_size if self.job_type.takes == "batch" else PAGE_SIZE
        after = UUID(int=0)
        try:
            while page := self._patiently(partial(self._load, after, page_size)):
                after = page[-1].id
                self._run_page(page)
                self._stop_if_lost()
            self.finisher.settle()
        except BaseException:
            # A canceled run, or a database that was away: what is done is recorded, and not done again.
            self.progress = None
            self.finisher.leave(self._planned_at_last())
            raise
        self._patiently(self._close)

    def _stop_if_lost(self) -> None:
        if self.lost():
            self.finisher.settle()
            raise self._lost()

    def _close(self) -> None:
        with transaction(self.engine) as connection:
            at = current_time(connection, self.now)
            store.hold_claim(connection, self.claim.id, self.execution_id, at)
            if store.unfinished_rows(connection, self.claim.id, most=1) == 0:
                store.close_claim(connection, self.claim.id, "done", at)

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        return patiently(ask, self.claim.lease_seconds)

    def _load(self, after: UUID, page_size: int) -> list[ClaimedJob]:
        with transaction(self.engine) as connection:
            return load_page(connection, self.claim.id, after, page_size, self.job_type.retry)

    def _run_page(self, page: Sequence[ClaimedJob]) -> None:
        tries = Tries(self.job_type, page, self.context, self.lost)
        try:
            for tried in tries:
                if tried is not None:
                    self._tried.append(tried)
                if len(self._tried) >= FINISH_BATCH or time.monotonic() - self._flushed_at > FINISH_SECONDS:
                    self._flush()
                if tried is None:
                    self.finisher.poll()
            self._flush()
        except BaseException:
            self._tried += tries.leave()
            raise

    def _flush(self) -> None:
        """Hand finished tries to the writer; planning a batch overlaps with the writing of the one before."""
        self._flushed_at = time.monotonic()
        while batch := self._tried[:FINISH_BATCH]:
            # Interrupted in between, a result comes twice rather than never: the second one isn't accepted.
            self.finisher.add(self._patiently(partial(self._planned, batch)))
            del self._tried[: len(batch)]
            self.finisher.catch_up()

    def _planned(self, batch: Sequence[Tried]) -> list[Result]:
        at = self.now
        if at is None:
            with transaction(self.engine) as connection:
                at = current_time(connection)
        return [
            Result(one.job, plan_next(one.job.plan, one.outcome, at), one.outcome.error, one.started_at)
            for one in batch
        ]

    def _planned_at_last(self) -> list[Result]:
        """Plan what is left on the way out, where an error must not hide the one that led there."""
        try:
            results = patiently(partial(self._planned, self._tried), LEAVE_SECONDS) if self._tried else []
        except Exception:  # noqa: BLE001 - told with its traceback
            event(logger, "results.not_planned", logging.ERROR, exc_info=True, jobs=len(self._tried))
            return []
        self._tried.clear()
        return results

    def _write(self, results: Sequence[Result]) -> Written:
        def write() -> Written:
            with transaction(self.engine) as connection:
                at = current_time(connection, self.now)
                store.hold_claim(connection, self.claim.id, self.execution_id, at)
                free, held = lock_finished(connection, results)
                accepted = finish_jobs(connection, free, at, run_id=self.run_id, holder=self.execution_id)
                done = sum(one.job.id in accepted and one.plan.recorded == "success" for one in free)
                store.correct_counts(connection, self.claim.id, done=done, failed=len(accepted) - done)
                return Written(accepted, held)

        return with_partition(self.engine, self.now, write)

    def _accepted(self, results: Sequence[Result], accepted: set[UUID]) -> None:
        for result in results:
            if result.job.id in accepted:
                self._count(result)
            else:
                self.report.discarded += 1
        if self.progress is not None:
            self.progress(self.report)

    def _count(self, result: Result) -> None:
        report, plan, job = self.report, result.plan, result.job
        started_at = result.started_at or job.due_at
        recorded = plan.recorded or "success"
        report.recorded[recorded] = report.recorded.get(recorded, 0) + 1
        report.lateness.append(max((started_at - job.due_at).total_seconds(), 0.0))
        if plan.pause_reason is not None:
            report.paused += 1
        if recorded != "success" and len(report.failures) < MAX_SHOWN_FAILURES:
            report.failures.append(
                FailedJob(
                    job.id,
                    job.tenant_id,
                    job.name,
                    job.scheduled_for,
                    job.tries,
                    result.error or "",
                    _follows(result),
                )
            )

    def _discard(self, results: Sequence[Result]) -> ClaimLost:
        self.report.discarded += len(results) + len(self._tried)
        self._tried.clear()
        return self._lost()

    def _lost(self) -> ClaimLost:
        self.report.status = "lost"
        return ClaimLost(
            f"claim {self.claim.id} was taken from run {self.run_id}: {self.report.finished:,} results had been "
            f"accepted, {self.report.discarded:,} are discarded, and the rest runs elsewhere"
        )


def _follows(result: Result) -> str:
    plan = result.plan
    if plan.pause_reason is not None:
        return plan.pause_reason
    if plan.status != "PENDING":
        return plan.status
    if plan.next_run_at is None:
        return "as planned"
    kind = "retry" if plan.recorded == "failure" else "next"
    return f"{kind} at {plan.next_run_at:%Y-%m-%d %H:%M:%SZ}"
