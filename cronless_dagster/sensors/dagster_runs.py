"""Dagster as the tick's executor: which runs exist of which claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from cronless_dagster.engine.run_requests import CLAIM_TAG
from cronless_dagster.engine.run_views import reason, view_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from cronless_dagster.engine.runs import RunView

# Far above what the limits of open claims let happen; keeps the statement's parameters bounded.
CLAIMS_A_QUERY = 1_000


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
            found = (
                view_of(run.run_id, run.status.value, run.tags, record.start_time, record.end_time)
                for record in records
                for run in (record.dagster_run,)
            )
            views += [view for view in found if view is not None]
        return views

    def why(self, run_id: str) -> str:
        """Return the first error of a failed run, as people would look it up in its log."""
        try:
            said = self._first_error(run_id)
        except Exception as error:  # noqa: BLE001 - a log that can't be read must not keep a failure from its record
            said = f"its log can't be read, {type(error).__name__}"
        return reason(run_id, said)

    def _first_error(self, run_id: str) -> str | None:
        for event_type in (dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE):
            for entry in self._instance.all_logs(run_id, of_type=event_type):
                error = getattr(entry.get_dagster_event().event_specific_data, "error", None)
                error = getattr(error, "cause", None) or error
                lines = error.message.strip().splitlines() if error is not None else []
                if lines:
                    return str(lines[0])
        return None
