"""Sending rows back to the planner, in batches, without touching what is due or claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import Connection, TextClause, text

from cronless_dagster.store.database import drive_by_array

if TYPE_CHECKING:
    from datetime import datetime

_LAST = UUID(int=2**128 - 1)
_END_OF_BATCH = text(
    "SELECT id FROM cronless.scheduled_job WHERE id > :after AND id <= :up_to ORDER BY id LIMIT :batch_size"
)
# The batch is a walk of the primary key and nothing else; what may be cleared is decided on its locked rows. With
# the conditions in the walk, a planner whose statistics know no instants ahead would take another index, and
# nest one scan in another.
_CLEAR = (
    "UPDATE cronless.scheduled_job AS job"
    " SET next_run_at = NULL, scheduled_for = NULL, plan_count = job.plan_count + 1"
    " WHERE job.ctid = ANY (ARRAY("
    " SELECT batch.ctid FROM ("
    " SELECT ctid, status, next_run_at, attempt, tzdata_version, schedule, job_type, tenant_id"
    " FROM cronless.scheduled_job WHERE id > :after AND id <= :last ORDER BY id LIMIT :batch_size FOR UPDATE"
    ") AS batch WHERE batch.status = 'PENDING' AND batch.next_run_at > :now AND batch.attempt = 0 AND {condition}))"
)
# What no zone data decides keeps its instant: the handler's own word, elapsed time, a person's direct write.
_OTHER_ZONE_DATA = text(
    _CLEAR.format(
        condition=r"batch.tzdata_version <> :tzdata_version AND batch.schedule !~* '^\s*@(handler|every)'"
    )
)
_ALL = text(
    _CLEAR.format(
        condition="(CAST(:job_type AS text) IS NULL OR batch.job_type = :job_type)"
        " AND (CAST(:tenant_id AS text) IS NULL OR batch.tenant_id = :tenant_id)"
        r" AND batch.schedule !~* '^\s*@handler'"
    )
)


def clear_other_zone_data(
    connection: Connection,
    tzdata_version: str,
    after: UUID,
    batch_size: int,
    now: datetime,
    *,
    up_to: UUID = _LAST,
) -> tuple[UUID | None, int]:
    """Clear future instants that were planned with other zone data, in the batch of ids behind `after`.

    Returns the batch's last id (None: no rows left up to `up_to`) and how many were cleared.
    """
    return _clear(
        connection, _OTHER_ZONE_DATA, after, up_to, batch_size, {"tzdata_version": tzdata_version, "now": now}
    )


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
    wanted = {"now": now, "job_type": job_type, "tenant_id": tenant_id}
    return _clear(connection, _ALL, after, _LAST, batch_size, wanted)


def _clear(
    connection: Connection,
    statement: TextClause,
    after: UUID,
    up_to: UUID,
    batch_size: int,
    parameters: dict[str, Any],
) -> tuple[UUID | None, int]:
    drive_by_array(connection)
    batch = {"after": after, "batch_size": batch_size}
    ids = connection.execute(_END_OF_BATCH, {**batch, "up_to": up_to}).scalars().all()
    if not ids:
        return None, 0
    cleared = connection.execute(statement, {**batch, "last": ids[-1], **parameters})
    return ids[-1], cleared.rowcount
