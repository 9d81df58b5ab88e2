"""What Dagster says of a run, in the tick's words, whether its instance is asked or its web server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from cronless_dagster.engine.run_requests import CLAIM_TAG, DISPATCH_TAG, MAX_RUNTIME_TAG
from cronless_dagster.engine.runs import RunState, RunView

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def view_of(
    run_id: str, status: str, tags: Mapping[str, str], start_time: float | None, end_time: float | None
) -> RunView | None:
    """Return a claim's run as the tick sees it; None for one that was created and never queued.

    Args:
        run_id: Dagster's id of it.
        status: One of Dagster's run statuses, such as "STARTED".
        tags: All of its tags; the claim's must be among them.
        start_time: Seconds since the epoch.
        end_time: Likewise.
    """
    # Whoever made it died before it was queued. Handed over again under the same run key, Dagster's sensor daemon
    # finds it and goes on with it; nobody else does.
    if status == "NOT_STARTED":
        return None
    # A status that this code doesn't know yet is no reason to take a claim from anybody.
    state = _STATES.get(status, "waiting")
    if state == "canceled" and _overran(tags, start_time, end_time):
        state = "failure"
    dispatch = tags.get(DISPATCH_TAG, "")
    return RunView(
        run_id,
        UUID(tags[CLAIM_TAG]),
        int(dispatch) if dispatch.isdigit() else 0,
        state,
        None if start_time is None else datetime.fromtimestamp(start_time, UTC),
    )


def reason(run_id: str, said: str | None) -> str:
    """Return why a run failed, as a scheduled job's last error; `said` is the first error in its log."""
    if said is not None:
        return f"{said} (its Dagster run {run_id})"
    return f"its Dagster run {run_id} failed without an error in its log: look at the run"


def _overran(tags: Mapping[str, str], start_time: float | None, end_time: float | None) -> bool:
    """Tell whether a run was ended by its time limit, which Dagster may show as canceled: no person said "no"."""
    limit = tags.get(MAX_RUNTIME_TAG, "")
    if not limit.isdigit() or start_time is None or end_time is None:
        return False
    return end_time - start_time >= int(limit)
