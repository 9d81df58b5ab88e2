"""From database rows to the planner's values."""

from __future__ import annotations

import json
from collections import namedtuple
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from cronless_dagster.scheduling.models import PlannedJob, RetryPolicy

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import CursorResult, Row


def planned_job(row: Row[Any], retry: RetryPolicy) -> PlannedJob:
    """Return the planner's view of a row that isn't being served.

    Args:
        row: A row of `take_unplanned.sql` or `take_misfired.sql`.
        retry: The job type's policy, for what the row leaves open.
    """
    return _planned_job(row, retry, row.scheduled_for, row.attempt, manual=False)


def _planned_job(
    row: Row[Any], retry: RetryPolicy, scheduled_for: datetime | None, attempt: int, *, manual: bool
) -> PlannedJob:
    return PlannedJob(
        id=row.id,
        schedule=row.schedule,
        timezone=row.timezone,
        dst_policy=row.dst_policy,
        misfire_policy=row.misfire_policy,
        misfire_grace=timedelta(seconds=row.misfire_grace_seconds),
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        jitter=timedelta(seconds=row.jitter_seconds),
        retry=retry_policy(row, retry),
        created_at=row.created_at,
        next_run_at=row.next_run_at,
        scheduled_for=scheduled_for,
        attempt=attempt,
        consecutive_failures=row.consecutive_failures,
        manual=manual,
    )


def retry_policy(row: Row[Any], default: RetryPolicy) -> RetryPolicy:
    """Return the row's retry policy: each column that is NULL is the job type's."""
    if (
        row.max_attempts is None
        and row.retry_delay_seconds is None
        and row.retry_max_delay_seconds is None
        and row.pause_after is None
    ):
        return default
    seconds = row.retry_delay_seconds
    longest = row.retry_max_delay_seconds
    return RetryPolicy(
        max_attempts=default.max_attempts if row.max_attempts is None else row.max_attempts,
        delay=default.delay if seconds is None else timedelta(seconds=seconds),
        max_delay=default.max_delay if longest is None else timedelta(seconds=longest),
        factor=default.factor,
        pause_after=default.pause_after if row.pause_after is None else row.pause_after,
    )


def plain_rows(result: CursorResult[Any]) -> list[Any]:
    """Return all rows as named tuples, which are read some thirty times faster than SQLAlchemy's own.

    What reads tens of columns of tens of thousands of rows spends most of its time there otherwise.
    """
    return list(map(_row_type(tuple(result.keys()))._make, result))


@cache
def _row_type(names: tuple[str, ...]) -> Any:
    return namedtuple("_Row", names)  # noqa: PYI024 - the names are the statement's


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """One job of a claim, with what its handler and its planner need.

    Attributes:
        scheduled_for: The nominal instant of the occurrence being served.
        due_at: When it became due (jitter and backoff included): lateness counts from here.
        tries: Tries of this occurrence, this one included, from 1.
        plan_version: Changes with each edit of the plan.
        payload_error: Why the payload can't be read and is empty here; the handler isn't called then.
    """

    id: UUID
    tenant_id: str
    job_type: str
    name: str
    payload: dict[str, Any]
    scheduled_for: datetime
    due_at: datetime
    manual: bool
    tries: int
    claim_id: UUID
    execution_id: UUID | None
    plan_version: int
    plan: PlannedJob
    payload_error: str | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for each try of one occurrence, and for no other: `job_id:scheduled_for`."""
        return f"{self.id}:{self.scheduled_for.isoformat()}"


def claimed_job(row: Row[Any], retry: RetryPolicy, claim_id: UUID) -> ClaimedJob:
    """Return a job of a claim from a row of `load_claim.sql` or `take_reported.sql`."""
    # On the queue route the start fence has counted this try; a run counts its jobs when it finishes them.
    started = row.execution_id is not None
    # A manual run is one try of an occurrence of its own; a retry that waits keeps its count.
    tries = 1 if row.serving_manual else row.attempt + (0 if started else 1)
    payload, payload_error = _payload(row.payload)
    return ClaimedJob(
        id=row.id,
        tenant_id=row.tenant_id,
        job_type=row.job_type,
        name=row.name,
        payload=payload,
        scheduled_for=row.serving_at,
        due_at=row.due_at,
        manual=row.serving_manual,
        tries=tries,
        claim_id=claim_id,
        execution_id=row.execution_id,
        plan_version=row.plan_version,
        plan=_planned_job(row, retry, row.serving_at, tries, manual=row.serving_manual),
        payload_error=payload_error,
    )


def _payload(text: str) -> tuple[dict[str, Any], str | None]:
    # PostgreSQL takes whole numbers of a hundred thousand digits, and values nested thousands deep: Python doesn't.
    try:
        return json.loads(text), None
    except (ValueError, RecursionError) as error:
        return {}, f"its payload can't be read ({error}): change it"
