"""Short ways to write jobs and instants in the planning tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from cronless_dagster.scheduling.models import PlannedJob, RetryPolicy

ID = UUID("b7a3c1d2-0000-4000-8000-000000000001")

_JOB = PlannedJob(
    id=ID,
    schedule="0 9 * * *",
    timezone="UTC",
    dst_policy="vixie",
    misfire_policy="latest",
    misfire_grace=timedelta(minutes=5),
    starts_at=None,
    ends_at=None,
    jitter=timedelta(0),
    retry=RetryPolicy(),
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    next_run_at=None,
    scheduled_for=None,
)


def at(text: str) -> datetime:
    """Return the instant of an ISO text in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def job(schedule: str = "0 9 * * *", **changes: Any) -> PlannedJob:
    """Return a job of this schedule; instants among the changes may be ISO texts in UTC."""
    given: dict[str, Any] = {
        name: at(value) if name in _INSTANTS and value else value for name, value in changes.items()
    }
    return replace(_JOB, schedule=schedule, **given)


_INSTANTS = {"starts_at", "ends_at", "created_at", "next_run_at", "scheduled_for"}
