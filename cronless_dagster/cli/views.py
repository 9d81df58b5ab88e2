"""Rows of jobs as commands show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from cronless_dagster.cli.parameters import JobName

SHOWN = (
    "id",
    "tenant_id",
    "job_type",
    "name",
    "status",
    "schedule",
    "timezone",
    "dst_policy",
    "payload",
    "misfire_policy",
    "misfire_grace_seconds",
    "jitter_seconds",
    "starts_at",
    "ends_at",
    "max_attempts",
    "retry_delay_seconds",
    "retry_max_delay_seconds",
    "pause_after",
    "next_run_at",
    "scheduled_for",
    "attempt",
    "crashes",
    "consecutive_failures",
    "claim_id",
    "last_outcome",
    "last_error",
    "last_finished_at",
    "invalid_reason",
    "paused_at",
    "pause_reason",
    "trigger_requested_at",
    "removed_at",
    "created_at",
    "updated_at",
)
"""The columns that are part of the command line's JSON, in this order."""


def job_json(row: Row[Any], columns: Sequence[str] = SHOWN) -> dict[str, Any]:
    """Return a job's columns under their own names."""
    return {column: getattr(row, column) for column in columns}


def reference(row: Row[Any]) -> str:
    """Return the name by which the command line finds the job: tenant/type/name."""
    return "/".join(part for part in (row.tenant_id, row.job_type, row.name) if part)


def state(row: Row[Any], now: datetime) -> str:
    """Return a job's state in one word for people: paused, due and unplanned beside the stored ones."""
    if row.removed_at is not None:
        return "removed"
    if row.status != "PENDING":
        return str(row.status)
    if row.paused_at is not None:
        return "paused"
    if row.next_run_at is None:
        return "unplanned"
    return "due" if row.next_run_at <= now else "PENDING"


def find_job(connection: Connection, job: JobName, *, removed: bool = False) -> Row[Any]:
    """Return the row of a job.

    Args:
        connection: In whose transaction to look.
        job: As it was named.
        removed: Answer for a removed job too, as long as its claim keeps it.

    Raises:
        JobError: There is none.
    """
    from cronless_dagster.store import jobs
    from cronless_dagster.store.errors import JobError

    if job.id is None:
        return jobs.find(connection, tenant_id=job.tenant_id, job_type=job.job_type, name=job.name)
    row = jobs.get(connection, job.id)
    if row is None or (row.removed_at is not None and not removed):
        raise JobError(f"there is no job {job.id}: see `cronless list`")
    return row
