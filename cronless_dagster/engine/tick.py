"""The tick: what is due now? It plans, reconciles, claims and says what to hand over; it never does the work.

Safe to call at any time, by any number of dispatchers, any number of times: what is not due is not taken, and
no row is taken twice.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from cronless_dagster.engine.claim_step import ClaimStep
from cronless_dagster.engine.launching import HAND_OVER_PATIENCE, launch
from cronless_dagster.engine.observing import observed
from cronless_dagster.engine.planning import finish_reported, follow_zone_data, plan_rows
from cronless_dagster.engine.queueing import QueueClaims, QueueRoute
from cronless_dagster.engine.reconcile_step import ReconcileStep
from cronless_dagster.engine.reconciling import hand_overs
from cronless_dagster.engine.report import TickReport, first_line
from cronless_dagster.scheduling.shards import FULL, IdRange
from cronless_dagster.store import claims as store
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.declarations import declare
from cronless_dagster.store.errors import DatabaseNotMigrated, DatabaseUnavailable
from cronless_dagster.store.history import ensure_partitions, prune
from cronless_dagster.store.progress import read_progress, write_progress
from cronless_dagster.telemetry.events import event
from cronless_dagster.telemetry.tracing import span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobType, JobTypes
    from cronless_dagster.engine.queueing import Publishing, Queue
    from cronless_dagster.engine.runs import Launcher, Runs

logger = logging.getLogger(__name__)

MAX_HAND_OVER = 20
BUDGET_SECONDS = 20.0
HISTORY_DAYS = 30
# Steps before the claim may take this part of the budget, so that planning a bulk load never keeps due jobs
# waiting.
_PLANNING_SHARE = 0.4
# What waits to be published again begins no claim in this part: a slow broker keeps no run from its due jobs.
_CLAIMING_SHARE = 0.3
# Into how many parts the id space may be cut for each to have its last tick noted.
_MOST_NOTED = 4_096


@observed
def tick(
    engine: Engine,
    job_types: JobTypes,
    *,
    now: datetime | None = None,
    ids: IdRange = FULL,
    runs: Runs | None = None,
    launcher: Launcher | None = None,
    queue: Queue | None = None,
    route: Literal["run", "local"] = "run",
    part: Literal["all", "rescue"] = "all",
    max_hand_over: int = MAX_HAND_OVER,
    budget_seconds: float = BUDGET_SECONDS,
    history_days: int = HISTORY_DAYS,
) -> TickReport:
    """Evaluate the schedule once.

    Args:
        engine: The store's engine.
        job_types: What this code can run; rows of other types are left alone.
        now: An instant in place of the database's clock; only where the clock is virtual.
        ids: The part of the id space that this dispatcher serves.
        runs: The executor of the run route; without it, or a launcher, this tick neither claims nor rescues for it.
        launcher: An executor that the tick itself asks for each run. It makes none of users' own Dagster jobs: those
            claims stay with the sensor.
        queue: Connects to the broker of the queue route; without it job types of that route take the other one.
        route: "run" hands claims over to `runs`; "local" leaves them to the calling process.
        part: "rescue" mends, publishes and hands over what is open, and neither plans nor claims.
        max_hand_over: The most claims handed over.
        budget_seconds: No new batch begins after so long.
        history_days: How long history is kept.

    Returns:
        What was done, and the claims that need a run. They are committed: a caller that dies now loses
        nothing, since the next tick hands over every claim that has no run.

    Raises:
        DatabaseUnavailable, DatabaseNotMigrated, ClockError: Nothing can be done at all.
    """
    with transaction(engine) as connection:
        at = current_time(connection, now)
        progress = read_progress(connection)
        declare(connection, [(one.name, one.route, one.batch_size) for one in job_types], at)
    report = TickReport(now=at)
    runs = launcher if launcher is not None else runs
    work = _Tick(engine, job_types, now, ids, report, launcher, budget_seconds)
    new_day = work.prepare(progress, plans=part == "all")
    with ExitStack() as connected:
        # Whoever can't see the runs, or the queues, makes no new ones: neither claims nor hand-overs.
        if queue is not None:
            with work.step("broker"):
                doubtful = progress.get(note_key(ids), {}).get("unconfirmed", ())
                work.queues = work.connected(connected.enter_context(queue()), doubtful)
        if route == "local" or runs is not None:
            with work.step("reconcile"):
                work.reconcile(runs, route)
        if work.queues is not None:
            with work.step("reconcile queues"):
                work.queues.reconcile()
            with work.step("publish"):
                work.queues.publish_waiting(work.may_publish_waiting)
        elif queue is None:
            # Those of types that have left the queue route would else wait for a broker that nobody names.
            with work.step("reconcile queues"):
                QueueClaims(engine, job_types, report, now, ids, work.may_claim).reconcile()
        if part == "all":
            with work.step("claim"):
                work.claim(route, max_hand_over, queues=queue is not None)
    if work.reconciled:
        with work.step("hand over"):
            work.hand_over(route, max_hand_over)
    if new_day:
        # Last, because it may wait for whoever reads the old days.
        with work.step("prune"):
            prune(engine, report.now, history_days)
    if part == "all" and is_noted(ids):
        with work.step("note"), transaction(engine) as connection:
            write_progress(connection, note_key(ids), _note(report), current_time(connection, now))
    return report


class _Tick:
    """The state that the steps of one tick share."""

    def __init__(
        self,
        engine: Engine,
        job_types: JobTypes,
        now: datetime | None,
        ids: IdRange,
        report: TickReport,
        launcher: Launcher | None,
        budget_seconds: float,
    ) -> None:
        self.engine, self.job_types, self.now, self.ids, self.report = engine, job_types, now, ids, report
        self.deadline = deadline = time.monotonic() + budget_seconds
        self.launcher = launcher
        self.reconciled = False
        self.queues: QueueRoute | None = None
        self._planning_deadline = deadline - budget_seconds * (1 - _PLANNING_SHARE)
        self._waiting_deadline = deadline - budget_seconds * _CLAIMING_SHARE

    def may_plan(self) -> bool:
        return time.monotonic() < self._planning_deadline

    def may_publish_waiting(self) -> bool:
        return time.monotonic() < self._waiting_deadline

    def may_claim(self) -> bool:
        return time.monotonic() < self.deadline

    def can_launch(self) -> bool:
        """Ask the launcher whether it answers: with no claim open, this tick has had nothing to ask it yet."""
        if self.launcher is None:
            return True
        answers = []
        with self.step("ask the executor"):
            answers.append(self.launcher.of_claims([]))
        return bool(answers)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; one that fails is reported and the others go on, unless the database is gone."""
        started = time.monotonic()
        try:
            with span("tick.step", step=name):
                yield
        except (DatabaseUnavailable, DatabaseNotMigrated):
            raise
        except Exception as error:  # noqa: BLE001 - told with its traceback
            # Whatever it was: one step must not keep the others from due jobs, minute after minute.
            event(logger, "tick.step_failed", logging.ERROR, exc_info=True, step=name, error=error)
            self.report.errors.append(f"{name}: {first_line(error)}")
        finally:
            self.report.seconds[name] = round(time.monotonic() - started, 4)

    def prepare(self, progress: dict[str, Any], *, plans: bool) -> bool:
        """Keep the history's days, take reported outcomes, and plan; tells whether this is a day's first tick."""
        new_day = False
        with self.step("history"):
            new_day = _keep_history(self.engine, self.report, progress)
        if plans:
            with self.step("zone data"):
                follow_zone_data(self.engine, self.report, progress, self.ids, self.now)
        with self.step("finish"):
            finish_reported(self.engine, self.report, self.job_types, self.ids, self.now, self.may_plan)
        if plans:
            with self.step("plan"):
                plan_rows(self.engine, self.report, self.ids, self.now, self.may_plan, self.job_types)
        return new_day

    def reconcile(self, runs: Runs | None, route: str) -> None:
        """Compare open claims with the executor's runs."""
        ReconcileStep(self, runs).reconcile(route)
        self.reconciled = True

    def connected(self, publishing: Publishing, doubtful: Sequence[str]) -> QueueRoute:
        """See how the queues stand. Raises BrokerError where the broker can't say."""
        queues = QueueRoute(
            self.engine, self.job_types, publishing, self.report, self.now, self.ids, self.may_claim, doubtful
        )
        queues.look()
        return queues

    def claim(self, route: str, max_hand_over: int, *, queues: bool) -> None:
        """Claim what is due on the routes that this tick can hand over to."""
        with transaction(self.engine) as connection:
            unsent = sum(
                claim.handed_over_at is None
                for claim in self._to_hand_over(store.open_claims(connection), route)
            )
        routes = {
            one.name: "queue" if queues and one.route == "queue" else self._route(one, route)
            for one in self.job_types
            if self._launches(one)
        }
        if not self.reconciled:
            routes = {name: on for name, on in routes.items() if on == "queue"}
        if self.queues is None:
            routes = {name: on for name, on in routes.items() if on != "queue"}
        if routes:
            ClaimStep(self, routes, self.queues).claim(max_hand_over - unsent)

    def hand_over(self, route: str, max_hand_over: int) -> None:
        """Choose the claims that need a run, and note that they were chosen."""
        with transaction(self.engine) as connection:
            claims = store.open_claims(connection)
            self.report.open_claims = len(claims)
            wanted = self._to_hand_over(claims, route)
            patience = timedelta(0) if self.launcher is None else HAND_OVER_PATIENCE
            chosen = hand_overs(wanted, self.ids, self.report.now, max_hand_over, patience)
            if self.launcher is None and chosen:
                store.mark_handed_over(connection, [one.claim_id for one in chosen], self.report.now)
        if self.launcher is None:
            self.report.hand_over = chosen
        else:
            launch(self, chosen, self.launcher)

    def _launches(self, job_type: JobType) -> bool:
        return self.launcher is None or job_type.dagster_job is None

    @staticmethod
    def _route(job_type: JobType, route: str) -> str:
        return job_type.run_route if route == "run" else route

    def _to_hand_over(self, claims: list[store.Claim], route: str) -> list[store.Claim]:
        """Return those of the open claims that this dispatcher could hand over, now or later."""
        return [
            claim
            for claim in claims
            if claim.state == "CLAIMED"
            and claim.job_type in self.job_types
            and self._launches(self.job_types[claim.job_type])
            and claim.route == self._route(self.job_types[claim.job_type], route)
            and self.ids.contains(claim.id_low)
        ]


def is_noted(ids: IdRange) -> bool:
    """Tell whether a range is one that a dispatcher serves again and again: notes of single ids would pile up."""
    return ids.high.int - ids.low.int >= (1 << 128) // _MOST_NOTED - 1


def note_key(ids: IdRange, what: str = "tick") -> str:
    """Return under which key of `progress` something is noted for a part of the id space."""
    return f"{what}:{ids.low}:{ids.high}"


def _keep_history(engine: Engine, report: TickReport, progress: dict[str, Any]) -> bool:
    """Make the next days' partitions at the first tick of a day; returns whether it is one."""
    today = report.now.date().isoformat()
    if progress.get("history") == today:
        return False
    with transaction(engine) as connection:
        ensure_partitions(connection, report.now)
        write_progress(connection, "history", today, report.now)
    return True


def _note(report: TickReport) -> dict[str, Any]:
    return {
        "at": report.now.isoformat(),
        "claimed": report.claimed_rows,
        "handed_over": len(report.hand_over),
        "errors": len(report.errors),
        "unconfirmed": report.unconfirmed,
        "left": sorted(report.left),
    }
