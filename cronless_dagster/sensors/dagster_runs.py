"""Dagster as the tick's executor: which runs exist of which claims."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import dagster as dg

from cronless_dagster.assets.job_types import CLAIM_TAG, DISPATCH_TAG, MAX_RUNTIME_TAG
from cronless_dagster.engine.runs import RunState, RunView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Far above what the limits of open claims let happen; keeps the statement's parameters bounded.
CLAIMS_A_QUERY = 1_000

_STATES: dict[str, RunState] = {
    "QUEUED": "waiting",
    "STARTING": "waiting",
    "MANAGED": "waiting",
    "STARTED": "started",
    "SUSPENDED": "started",
    "CANCELING": "started",
    "SUCCESS": "success",
    "FAILURE": "failure",
    "CANCELED": "canceled",
}


class DagsterRuns:
    """Asks a Dagster instance for the runs of claims, by their tags."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        """Ask `instance`, in which this tick's runs are made."""
        self._instance = instance

    def of_claims(self, claim_ids: Sequence[UUID]) -> list[RunView]:
        """Return the runs of these claims, re-executed ones included, since they keep the tags."""
        views: list[RunView] = []
        for start in range(0, len(claim_ids), CLAIMS_A_QUERY):
            wanted = [str(claim_id) for claim_id in claim_ids[start : start + CLAIMS_A_QUERY]]
            records = self._instance.get_run_records(filters=dg.RunsFilter(tags={CLAIM_TAG: wanted}))
            views += _views(records)
        return views

    def why(self, run_id: str) -> str:
        """Return the first error of a failed run, as people would look it up in its log."""
        try:
            said = self._first_error(run_id)
        except Exception as error:  # noqa: BLE001 - a log that can't be read must not keep a failure from its record
            said = f"its log can't be read, {type(error).__name__}"
        if said is not None:
            return f"{said} (its Dagster run {run_id})"
        return f"its Dagster run {run_id} failed without an error in its log: look at the run"

    def _first_error(self, run_id: str) -> str | None:
        for event_type in (dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE):
            for entry in self._instance.all_logs(run_id, of_type=event_type):
                error = getattr(entry.get_dagster_event().event_specific_data, "error", None)
                error = getattr(error, "cause", None) or error
                lines = error.message.strip().splitlines() if error is not None else []
                if lines:
                    return str(lines[0])
        return None


def _views(records: Sequence[dg.RunRecord]) -> Iterator[RunView]:
    for record in records:
        run = record.dagster_run
        # A run that was created and never queued is none: its daemon died in between. Handed over again under
        # the same run key, Dagster finds it and goes on with it.
        if run.status.value == "NOT_STARTED":
            continue
        # A status that this code doesn't know yet is no reason to take a claim from anybody.
        state = _STATES.get(run.status.value, "waiting")
        if state == "canceled" and _overran(record):
            state = "failure"
        dispatch = run.tags.get(DISPATCH_TAG, "")
        yield RunView(
            run.run_id,
            UUID(run.tags[CLAIM_TAG]),
            int(dispatch) if dispatch.isdigit() else 0,
            state,
            None if record.start_time is None else datetime.fromtimestamp(record.start_time, UTC),
        )


def _overran(record: dg.RunRecord) -> bool:
    """Tell whether a run was ended by its time limit, which Dagster may show as canceled: no person said "no"."""
    limit = record.dagster_run.tags.get(MAX_RUNTIME_TAG, "")
    if not limit.isdigit() or record.start_time is None or record.end_time is None:
        return False
    return record.end_time - record.start_time >= int(limit)
