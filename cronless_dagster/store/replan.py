"""Sending rows back to the planner, in batches, without touching what is due or claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from sqlalchemy import Connection, text

from cronless_dagster.store.database import drive_by_array

if TYPE_CHECKING:
    from datetime import datetime

_BATCH = (
    "WITH batch AS MATERIALIZED ("
    " SELECT id FROM cronless.scheduled_job WHERE id > :after ORDER BY id LIMIT :batch_size"
    "), cleared AS ("
    " UPDATE cronless.scheduled_job AS job"
    " SET next_run_at = NULL, scheduled_for = NULL, plan_count = job.plan_count + 1"
    " FROM batch WHERE job.id = batch.id AND job.status = 'PENDING' AND job.next_run_at > :now AND job.attempt = 0"
    " AND {condition}"
    " RETURNING 1"
    ") SELECT (SELECT max(batch.id::text) FROM batch) AS last, (SELECT count(*) FROM cleared) AS cleared"
)
# What no zone data decides keeps its instant: the handler's own word, elapsed time, a person's direct write.
_OTHER_ZONE_DATA = text(
    _BATCH.format(
        condition=r"job.tzdata_version <> :tzdata_version AND job.schedule !~* '^\s*@(handler|every)'"
    )
)
_ALL = text(
    _BATCH.format(
        condition="(CAST(:job_type AS text) IS NULL OR job.job_type = :job_type)"
        " AND (CAST(:tenant_id AS text) IS NULL OR job.tenant_id = :tenant_id)"
        r" AND job.schedule !~* '^\s*@handler'"
    )
)


def clear_other_zone_data(
    connection: Connection, tzdata_version: str, after: UUID, batch_size: int, now: datetime
) -> tuple[UUID | None, int]:
    """Clear future instants that were planned with other zone data, in the batch of ids behind `after`.

    Returns the batch's last id (None: no rows left) and how many were cleared.
    """
    drive_by_array(connection)
    row = connection.execute(
        _OTHER_ZONE_DATA,
        {"tzdata_version": tzdata_version, "after": after, "batch_size": batch_size, "now": now},
    ).one()
    return (UUID(row.last) if row.last else None), row.cleared


def clear_future(
    connection: Connection,
    after: UUID,
    batch_size: int,
    now: datetime,
    *,
    job_type: str | None = None,
    tenant_id: str | None = None,
) -> tuple[UUID | None, int]:
    """Clear all future instants of the batch of ids behind `after`, of one type or tenant if given.

    The instants that handlers chose stay: nothing could compute them again. Returns as above.
    """
    drive_by_array(connection)
    row = connection.execute(
        _ALL,
        {"after": after, "batch_size": batch_size, "now": now, "job_type": job_type, "tenant_id": tenant_id},
    ).one()
    return (UUID(row.last) if row.last else None), row.cleared
