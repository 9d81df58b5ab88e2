"""The tick's reconcile step: open claims against the executor's runs, each mended on its own."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, cast

from cronless_dagster.engine import following
from cronless_dagster.engine.dagster_jobs import DAGSTER_JOB
from cronless_dagster.engine.reconciling import Action, by_claim, decide, decide_forgotten, decide_local
from cronless_dagster.engine.report import first_line
from cronless_dagster.engine.rescue import carry_out
from cronless_dagster.scheduling.models import Outcome, RetryPolicy
from cronless_dagster.store import claims as store
from cronless_dagster.store.database import transaction
from cronless_dagster.store.declarations import forgotten_types
from cronless_dagster.telemetry.events import event

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from cronless_dagster.engine.claim_step import Ticking
    from cronless_dagster.engine.runs import Runs, RunView

logger = logging.getLogger(__name__)


class ReconcileStep:
    """Compares open claims with runs; local claims are judged by their lease, by anybody."""

    def __init__(self, tick: Ticking, runs: Runs | None) -> None:
        """Prepare; without `runs` only local claims can be judged."""
        self._tick, self._runs, self._report = tick, runs, tick.report

    def reconcile(self, route: str) -> None:
        """Decide about each open claim of this dispatcher's ids, and carry it out."""
        tick, at = self._tick, self._report.now
        with transaction(tick.engine) as connection:
            claims = store.open_claims(connection)
            forgotten = forgotten_types(
                connection, {one.job_type for one in claims if one.job_type not in tick.job_types}, at
            )
        mine = [claim for claim in claims if tick.ids.contains(claim.id_low)]
        asked = [claim for claim in mine if claim.route in ("run", DAGSTER_JOB)] if route == "run" else []
        seen: Mapping[UUID, Sequence[RunView]] = {}
        if self._runs is None:
            asked = []
        elif asked:
            seen = by_claim(self._runs.of_claims([claim.id for claim in asked]))
            followed = [claim for claim in asked if claim.route == DAGSTER_JOB]
            asked = [claim for claim in asked if claim.route == "run"]
            self._follow_dagster_jobs(followed, forgotten, seen, self._runs)
        # A type that isn't declared here may be run by another Dagster, whose runs aren't among these: that none
        # is seen says nothing then.
        actions = [
            (claim, *decide(claim, seen.get(claim.id, []), at))
            for claim in asked
            if claim.id in seen
            or claim.state == "RUNNING"
            or claim.job_type in tick.job_types
            or claim.job_type in forgotten
        ]
        actions += [
            (claim, decide_forgotten(claim, seen.get(claim.id, [])), None)
            for claim in mine
            if claim.route in ("run", DAGSTER_JOB)
            and (claim.job_type in forgotten or self._changed(claim, at))
        ]
        actions += [(claim, decide_local(claim, at), None) for claim in mine if claim.route == "local"]
        for claim, action, run_id in actions:
            if action != "keep":
                self._carried_out(
                    claim, partial(carry_out, tick.engine, claim, action, run_id, tick.job_types, tick.now)
                )

    def _carried_out(self, claim: store.Claim, carry: Callable[[], str | None]) -> None:
        """Carry out what was decided of a claim; one that can't be mended must not keep the others from theirs."""
        if not self._tick.may_claim():
            return
        try:
            happened = carry()
        except Exception as error:  # noqa: BLE001 - told with its traceback
            event(logger, "claim.not_reconciled", logging.ERROR, exc_info=True, claim=claim.id)
            self._report.errors.append(f"claim {claim.id}: {first_line(error)}")
            return
        if happened is not None:
            self._report.count(happened)

    def _changed(self, claim: store.Claim, now: datetime) -> bool:
        """Tell whether a claim was made when its type was run in another way, a Dagster job or not.

        After its lease only: older code that runs beside may hand it over yet.
        """
        job_type = self._tick.job_types.get(claim.job_type)
        return job_type is not None and claim.route != job_type.run_route and claim.lease_expires_at < now

    def _follow_dagster_jobs(
        self,
        claims: Sequence[store.Claim],
        forgotten: Collection[str],
        seen: Mapping[UUID, Sequence[RunView]],
        runs: Runs,
    ) -> None:
        """Record what runs of users' own Dagster jobs came to; those of other code are left to it."""
        for claim in claims:
            job_type = self._tick.job_types.get(claim.job_type)
            if job_type is None and claim.job_type not in forgotten:
                continue
            action, run = following.decide(claim, seen.get(claim.id, []), self._report.now)
            if action != "keep":
                retry = RetryPolicy() if job_type is None else job_type.retry
                self._carried_out(claim, partial(self._of_dagster_job, claim, retry, action, run, runs))

    def _of_dagster_job(
        self,
        claim: store.Claim,
        retry: RetryPolicy,
        action: following.Action,
        run: RunView | None,
        runs: Runs,
    ) -> str | None:
        tick = self._tick
        if run is not None and action == "ended":
            failed = run.state == "failure"
            outcome = Outcome("failure", error=runs.why(run.run_id)) if failed else Outcome("success")
            return following.record(tick.engine, claim, retry, outcome, tick.now, run=run)
        if run is not None and action in ("started", "renew"):
            return following.follow(tick.engine, claim, action, run, tick.now)
        run_id = None if run is None else run.run_id
        return carry_out(tick.engine, claim, cast("Action", action), run_id, tick.job_types, tick.now)
