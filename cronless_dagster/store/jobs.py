"""Scheduled jobs in the caller's own SQLAlchemy session or connection, and so in the caller's transaction.

Nothing here commits. Each function takes a `Session` or a `Connection` of any PostgreSQL driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import Connection, Row, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from cronless_dagster.store.errors import JobError
from cronless_dagster.store.job_values import MAX_PAYLOAD_BYTES, checked, is_storable, plain_payload
from cronless_dagster.store.tables import scheduled_job

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from sqlalchemy.orm import Session

    Database: TypeAlias = "Session | Connection"

_now = func.cronless.clock_now()


def add(
    db: Database,
    *,
    tenant_id: str,
    job_type: str,
    schedule: str,
    name: str = "",
    payload: Mapping[str, Any] | None = None,
    timezone: str = "UTC",
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    **options: Any,
) -> UUID:
    """Add a scheduled job and return its id; the next tick plans it.

    Args:
        db: The caller's session or connection.
        tenant_id: Whose job it is; fairness and limits count by it.
        job_type: A declared job type. One that no running code declares stays PENDING until some does.
        schedule: A cron line, `@every 15m`, `@once …`, `RRULE:…`, `@window 1h` or `@handler fallback=24h`.
        name: Unique together with tenant and job type.
        payload: A JSON object for the handler, at most `max_payload_bytes` as JSON.
        timezone: IANA name of the zone in which the schedule is read.
        max_payload_bytes: The payload's limit.
        options: Any other column of `CHANGEABLE`, such as `dst_policy`, `jitter_seconds`, `starts_at`.

    Raises:
        ScheduleError, TimezoneError: The schedule or the zone can't be used.
        PayloadError: The payload is no JSON object or too large.
        JobError: A name that is taken, or a value out of its range.
    """
    values = checked(
        {
            "tenant_id": tenant_id,
            "job_type": job_type,
            "name": name,
            "schedule": schedule,
            "timezone": timezone,
            "payload": plain_payload(payload),
            **options,
        },
        max_payload_bytes,
    )
    inserted = db.execute(
        insert(scheduled_job).values(values).on_conflict_do_nothing().returning(scheduled_job.c.id)
    ).scalar()
    if inserted is None:
        raise JobError(
            f"tenant {tenant_id!r} already has a {job_type!r} job named {name!r}: change that one, upsert, or give "
            "another name"
        )
    return inserted  # type: ignore[no-any-return]


def upsert(
    db: Database,
    *,
    tenant_id: str,
    job_type: str,
    schedule: str,
    name: str = "",
    payload: Mapping[str, Any] | None = None,
    timezone: str = "UTC",
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    **options: Any,
) -> UUID:
    """Add the job, or change the one of the same tenant, type and name; returns its id.

    What isn't given of `timezone` and `payload` is set to its default, as for a new job; other options that are
    left out stay as they are. The same call twice changes nothing: neither the plan nor `updated_at`. Raises as
    `add` does.
    """
    values = checked(
        {
            "tenant_id": tenant_id,
            "job_type": job_type,
            "name": name,
            "schedule": schedule,
            "timezone": timezone,
            "payload": plain_payload(payload),
            **options,
        },
        max_payload_bytes,
    )
    statement = insert(scheduled_job).values(values)
    changes = {key: statement.excluded[key] for key in values if key not in ("tenant_id", "job_type", "name")}
    differs = [scheduled_job.c[key].is_distinct_from(value) for key, value in changes.items()]
    condition = differs[0]
    for other in differs[1:]:
        condition = condition | other
    changed = db.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "job_type", "name"],
            index_where=scheduled_job.c.removed_at.is_(None),
            set_=changes,
            where=condition,
        ).returning(scheduled_job.c.id)
    ).scalar()
    if changed is not None:
        return changed  # type: ignore[no-any-return]
    return find(db, tenant_id=tenant_id, job_type=job_type, name=name).id  # type: ignore[no-any-return]


def change(db: Database, job_id: UUID, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES, **values: Any) -> None:
    """Change columns of `CHANGEABLE`; an edit never fires anything and never drops what is due or claimed.

    Raises as `add` does, and JobError where there is no such job or it is claimed and its tenant or type was to
    change.
    """
    current = _required(db, job_id)
    combined = {
        key: getattr(current, key) for key in ("schedule", "timezone", "dst_policy", "starts_at", "ends_at")
    }
    checked({**combined, **values}, max_payload_bytes)
    if current.claim_id is not None and {"tenant_id", "job_type"} & values.keys():
        raise JobError(f"job {job_id} is claimed: change its tenant or job type once it is back in PENDING")
    _check_name_is_free(db, current, values)
    _changed(db, job_id, values)


def pause(db: Database, job_id: UUID, *, reason: str | None = None) -> None:
    """Pause a job: nothing new is claimed; what is claimed ends as it would. Twice is once."""
    if reason is not None and not is_storable(reason):
        raise JobError(f"the reason {reason[:80]!r} can't be stored: leave out NUL and broken characters")
    _changed(
        db,
        job_id,
        {
            "paused_at": func.coalesce(scheduled_job.c.paused_at, _now),
            "pause_reason": func.coalesce(scheduled_job.c.pause_reason, reason),
        },
    )


def resume(db: Database, job_id: UUID) -> None:
    """Resume a job from now on; what fell into the pause is recorded as missed, not made up."""
    _changed(db, job_id, {"paused_at": None})


def trigger(db: Database, job_id: UUID) -> None:
    """Ask for one run now, beside the plan; also of a paused job.

    Raises:
        JobError: There is no such job, or it has ended (DONE, FAILED, INVALID): edit its schedule instead.
    """
    job = _required(db, job_id)
    if job.status in ("DONE", "FAILED", "INVALID"):
        raise JobError(
            f"job {job_id} is {job.status}: give it a new schedule or next_run_at instead of a trigger"
        )
    _changed(db, job_id, {"trigger_requested_at": _now})


def remove(db: Database, job_id: UUID) -> bool:
    """Remove a job; a claimed one is gone once its holder finishes. Returns whether it is gone at once.

    Raises:
        JobError: There is no such job.
    """
    _required(db, job_id)
    db.execute(delete(scheduled_job).where(scheduled_job.c.id == job_id))
    return db.execute(select(scheduled_job.c.id).where(scheduled_job.c.id == job_id)).first() is None


def find(db: Database, *, tenant_id: str, job_type: str, name: str = "") -> Row[Any]:
    """Return the row of a job by its name. Raises JobError where there is none."""
    row = db.execute(
        select(scheduled_job).where(
            scheduled_job.c.tenant_id == tenant_id,
            scheduled_job.c.job_type == job_type,
            scheduled_job.c.name == name,
            scheduled_job.c.removed_at.is_(None),
        )
    ).one_or_none()
    if row is None:
        raise JobError(f"tenant {tenant_id!r} has no {job_type!r} job named {name!r}: see `cronless list`")
    return row


def get(db: Database, job_id: UUID) -> Row[Any] | None:
    """Return the row of a job, or None."""
    return db.execute(select(scheduled_job).where(scheduled_job.c.id == job_id)).one_or_none()


def _required(db: Database, job_id: UUID) -> Row[Any]:
    row = get(db, job_id)
    if row is None or row.removed_at is not None:
        raise JobError(f"there is no job {job_id}: see `cronless list`")
    return row


def _changed(db: Database, job_id: UUID, values: Mapping[str, Any]) -> None:
    if not values:
        return
    changed = db.execute(
        update(scheduled_job)
        .where(scheduled_job.c.id == job_id, scheduled_job.c.removed_at.is_(None))
        .values(**values)
        .returning(scheduled_job.c.id)
    ).scalar()
    if changed is None:
        raise JobError(f"there is no job {job_id}: see `cronless list`")


def _check_name_is_free(db: Database, current: Row[Any], values: Mapping[str, Any]) -> None:
    """Refuse a name that another job has: the database would too, but leave the caller's transaction aborted."""
    old = {key: getattr(current, key) for key in ("tenant_id", "job_type", "name")}
    new = {key: values.get(key, old[key]) for key in old}
    if new == old:
        return
    taken = db.execute(
        select(scheduled_job.c.id)
        .filter_by(**new)
        .where(scheduled_job.c.removed_at.is_(None), scheduled_job.c.id != current.id)
    ).first()
    if taken is not None:
        raise JobError(
            f"tenant {new['tenant_id']!r} already has a {new['job_type']!r} job named {new['name']!r}: "
            "give another name"
        )
