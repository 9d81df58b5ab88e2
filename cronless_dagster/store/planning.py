"""Rows that wait for their instant: locking them, and writing what the planner decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cronless_dagster.scheduling.zones import TZDATA_VERSION
from cronless_dagster.store.arrays import instant_array, integer_array, text_array, uuid_array
from cronless_dagster.store.database import drive_by_array
from cronless_dagster.store.rows import plain_rows
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Connection, Row

    from cronless_dagster.scheduling.misfires import ServeOccurrence
    from cronless_dagster.scheduling.models import Plan
    from cronless_dagster.scheduling.shards import IdRange


def take_unplanned(connection: Connection, ids: IdRange, batch_size: int) -> Sequence[Row[Any]]:
    """Lock at most `batch_size` PENDING rows without an instant."""
    return plain_rows(
        connection.execute(
            statement("take_unplanned"), {"id_low": ids.low, "id_high": ids.high, "batch_size": batch_size}
        )
    )


def take_reported(connection: Connection, ids: IdRange, batch_size: int) -> Sequence[Row[Any]]:
    """Lock at most `batch_size` rows whose workers reported an outcome."""
    return plain_rows(
        connection.execute(
            statement("take_reported"), {"id_low": ids.low, "id_high": ids.high, "batch_size": batch_size}
        )
    )


def take_misfired(connection: Connection, ids: Sequence[UUID]) -> Sequence[Row[Any]]:
    """Return rows that this transaction has claimed past their misfire grace."""
    return plain_rows(connection.execute(statement("take_misfired"), {"ids": uuid_array(ids)}))


def write_plans(connection: Connection, plans: Sequence[tuple[UUID, Plan]]) -> None:
    """Write the plans of rows that this transaction has locked."""
    _write(connection, "write_plans", plans)


def replan_claimed(connection: Connection, plans: Sequence[tuple[UUID, Plan]]) -> None:
    """Take rows out of the claim that this transaction made, with the plans given."""
    _write(connection, "replan_claimed", plans)


def undo_claim(connection: Connection, ids: Sequence[UUID]) -> None:
    """Take rows out of the claim that this transaction made, as they were before."""
    if ids:
        drive_by_array(connection)
        connection.execute(statement("undo_claim"), {"ids": uuid_array(ids)})


def _write(connection: Connection, name: str, plans: Sequence[tuple[UUID, Plan]]) -> None:
    if not plans:
        return
    drive_by_array(connection)
    connection.execute(
        statement(name),
        {
            "ids": uuid_array([job_id for job_id, _ in plans]),
            "statuses": text_array([plan.status for _, plan in plans]),
            "next_run_ats": instant_array([plan.next_run_at for _, plan in plans]),
            "scheduled_fors": instant_array([plan.scheduled_for for _, plan in plans]),
            "attempts": integer_array([plan.attempt for _, plan in plans]),
            "reasons": text_array([plan.reason for _, plan in plans]),
            "tzdata_version": TZDATA_VERSION,
        },
    )


def serve_instead(connection: Connection, decisions: Sequence[tuple[UUID, ServeOccurrence]]) -> None:
    """Make claimed rows serve the occurrences that the misfire policy chose."""
    if not decisions:
        return
    drive_by_array(connection)
    connection.execute(
        statement("serve_instead"),
        {
            "ids": [job_id for job_id, _ in decisions],
            "serving_ats": [decision.scheduled_for for _, decision in decisions],
            "attempts": [decision.attempt for _, decision in decisions],
        },
    )
