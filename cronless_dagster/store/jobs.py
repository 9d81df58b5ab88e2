"""Scheduled jobs in the caller's own SQLAlchemy session or connection, and so in the caller's transaction.

Nothing here commits. Each function takes a `Session` or a `Connection` of any PostgreSQL driver.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from sqlalchemy import Connection, Row, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from cronless_dagster.scheduling.models import MISFIRE_POLICIES
from cronless_dagster.scheduling.schedules import parse_schedule
from cronless_dagster.store.errors import JobError, PayloadError
from cronless_dagster.store.tables import scheduled_job

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy.orm import Session

    Database: TypeAlias = "Session | Connection"

MAX_PAYLOAD_BYTES = 65_536
CHANGEABLE = frozenset(
    {
        "name",
        "payload",
        "schedule",
        "timezone",
        "dst_policy",
        "misfire_policy",
        "misfire_grace_seconds",
        "starts_at",
        "ends_at",
        "jitter_seconds",
        "max_attempts",
        "retry_delay_seconds",
        "retry_max_delay_seconds",
        "pause_after",
        "next_run_at",
        "tenant_id",
        "job_type",
    }
)
_NON_NEGATIVE = ("misfire_grace_seconds", "jitter_seconds", "retry_delay_seconds", "retry_max_delay_seconds")
_AT_LEAST_ONE = ("max_attempts", "pause_after")
_LONGEST = {"tenant_id": 200, "job_type": 100, "name": 500}
_LARGEST_INTEGER = 2**31 - 1
# An odd number of backslashes: a NUL, and not the text of its escape.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
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
    values = _checked(
        {
            "tenant_id": tenant_id,
            "job_type": job_type,
            "name": name,
            "schedule": schedule,
            "timezone": timezone,
            "payload": _plain(payload),
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

    The same call twice changes nothing: neither the plan nor `updated_at`. Raises as `add` does.
    """
    values = _checked(
        {
            "tenant_id": tenant_id,
            "job_type": job_type,
            "name": name,
            "schedule": schedule,
            "timezone": timezone,
            "payload": _plain(payload),
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
    _checked({**combined, **values}, max_payload_bytes)
    if current.claim_id is not None and {"tenant_id", "job_type"} & values.keys():
        raise JobError(f"job {job_id} is claimed: change its tenant or job type once it is back in PENDING")
    _check_name_is_free(db, current, values)
    _changed(db, job_id, values)


def pause(db: Database, job_id: UUID, *, reason: str | None = None) -> None:
    """Pause a job: nothing new is claimed; what is claimed ends as it would. Twice is once."""
    if reason is not None and not _is_storable(reason):
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


def _plain(payload: object) -> object:
    # A Mapping of another kind is fine; what is none is refused by its check, with its type.
    if payload is None:
        return {}
    return dict(payload) if isinstance(payload, Mapping) else payload


def _checked(values: dict[str, Any], max_payload_bytes: int) -> dict[str, Any]:
    unknown = set(values) - CHANGEABLE
    if unknown:
        raise JobError(
            f"{', '.join(sorted(unknown))} can't be set on a job: use one of {', '.join(sorted(CHANGEABLE))}"
        )
    for key, value in values.items():
        if value is None and not scheduled_job.c[key].nullable:
            raise JobError(f"{key} is None: give a value, or leave it out")
    if "schedule" in values:
        parse_schedule(values["schedule"], values.get("timezone", "UTC"), values.get("dst_policy", "vixie"))
    if "payload" in values:
        check_payload(values["payload"], max_payload_bytes)
    _check_ranges(values)
    _check_instants(values)
    return values


def _is_storable(value: object) -> TypeGuard[str]:
    """Tell whether a value is a text that PostgreSQL can store: without NUL, and with whole characters only."""
    if not isinstance(value, str) or "\x00" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_ranges(values: Mapping[str, Any]) -> None:
    if "misfire_policy" in values and values["misfire_policy"] not in MISFIRE_POLICIES:
        raise JobError(
            f"misfire policy {values['misfire_policy']!r} is not known: use {', '.join(MISFIRE_POLICIES)}"
        )
    for key, longest in _LONGEST.items():
        value = values.get(key)
        if value is None:
            continue
        if not _is_storable(value) or len(value) > longest or (key != "name" and not value):
            raise JobError(
                f"{key} {str(value)[:80]!r} can't be used: give a text of at most {longest} characters"
            )
        if len(value.encode()) > 3 * longest:
            # The three together are an index entry, and PostgreSQL limits those in bytes.
            raise JobError(
                f"{key} {value[:80]!r} takes {len(value.encode()):,} bytes: give a text of at most {3 * longest:,}"
            )
    for key in (*_NON_NEGATIVE, *_AT_LEAST_ONE):
        value = values.get(key)
        lowest = 1 if key in _AT_LEAST_ONE else 0
        if value is not None and not (isinstance(value, int) and lowest <= value <= _LARGEST_INTEGER):
            raise JobError(f"{key} {value!r} is out of range: give a whole number from {lowest}")


def _check_instants(values: Mapping[str, Any]) -> None:
    for key in ("starts_at", "ends_at", "next_run_at"):
        value = values.get(key)
        if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
            raise JobError(f"{key} {value!r} has no zone: give an aware datetime")
    starts_at, ends_at = values.get("starts_at"), values.get("ends_at")
    if starts_at is not None and ends_at is not None and ends_at < starts_at:
        raise JobError(
            f"ends_at {ends_at.isoformat()} lies before starts_at {starts_at.isoformat()}: swap them"
        )


def check_payload(payload: object, max_bytes: int = MAX_PAYLOAD_BYTES) -> None:
    """Check that a payload is a JSON object that PostgreSQL can store, within its size.

    Raises:
        PayloadError: It isn't.
    """
    if not isinstance(payload, dict):
        raise PayloadError(f"the payload is {type(payload).__name__}, not a JSON object: write it as {{…}}")
    try:
        encoded = json.dumps(payload, allow_nan=False, ensure_ascii=False)
        size = len(encoded.encode())
    except (TypeError, ValueError) as error:
        raise PayloadError(
            f"the payload is no JSON ({error}): use texts, numbers, lists and objects"
        ) from error
    except RecursionError as error:
        raise PayloadError("the payload is nested too deeply: flatten it") from error
    if size > max_bytes:
        raise PayloadError(
            f"the payload has {size:,} bytes, more than {max_bytes:,}: store it elsewhere and give "
            "its address"
        )
    if _NUL.search(encoded):
        raise PayloadError(
            "the payload holds a NUL character, which PostgreSQL's jsonb can't store: leave it out"
        )
