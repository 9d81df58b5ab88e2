"""Dagster as the tick's executor: which runs exist of which claims."""

from __future__ import annotations

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
            run.run_id, UUID(run.tags[CLAIM_TAG]), int(dispatch) if dispatch.isdigit() else 0, state
        )


def _overran(record: dg.RunRecord) -> bool:
    """Tell whether a run was ended by its time limit, which Dagster may show as canceled: no person said "no"."""
    limit = record.dagster_run.tags.get(MAX_RUNTIME_TAG, "")
    if not limit.isdigit() or record.start_time is None or record.end_time is None:
        return False
    return record.end_time - record.start_time >= int(limit)
