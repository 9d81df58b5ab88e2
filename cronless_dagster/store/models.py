"""`ScheduledJob`, a mapped class for users' own SQLAlchemy sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import DeclarativeBase, Mapped

from cronless_dagster.store.tables import metadata, scheduled_job

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID


class Base(DeclarativeBase):
    """Mapped classes share the tables' metadata; users' own models keep a base of their own."""

    metadata = metadata


class ScheduledJob(Base):
    """One scheduled job: a row that says what to run, when, and for whom.

    Change the plan by writing `schedule`, `timezone`, `dst_policy`, `starts_at`, `ends_at`, `jitter_seconds` or
    `next_run_at`; the database's trigger does the rest in the same transaction. All instants are aware.
    Leave the columns of the dispatcher alone (`status`, `claim_id`, `plan_count`, the counters).
    """

    __table__ = scheduled_job

    if TYPE_CHECKING:
        id: Mapped[UUID]
        tenant_id: Mapped[str]
        job_type: Mapped[str]
        name: Mapped[str]
        payload: Mapped[dict[str, Any]]
        schedule: Mapped[str]
        timezone: Mapped[str]
        dst_policy: Mapped[str]
        misfire_policy: Mapped[str]
        misfire_grace_seconds: Mapped[int]
        starts_at: Mapped[datetime | None]
        ends_at: Mapped[datetime | None]
        jitter_seconds: Mapped[int]
        max_attempts: Mapped[int | None]
        retry_delay_seconds: Mapped[int | None]
        retry_max_delay_seconds: Mapped[int | None]
        pause_after: Mapped[int | None]
        status: Mapped[str]
        next_run_at: Mapped[datetime | None]
        scheduled_for: Mapped[datetime | None]
        last_outcome: Mapped[str | None]
        last_error: Mapped[str | None]
        last_finished_at: Mapped[datetime | None]
        invalid_reason: Mapped[str | None]
        paused_at: Mapped[datetime | None]
        pause_reason: Mapped[str | None]
        trigger_requested_at: Mapped[datetime | None]
        removed_at: Mapped[datetime | None]
        claim_id: Mapped[UUID | None]
        attempt: Mapped[int]
        crashes: Mapped[int]
        consecutive_failures: Mapped[int]
        plan_version: Mapped[int]
        created_at: Mapped[datetime]
        updated_at: Mapped[datetime]

    def __repr__(self) -> str:
        """Name the row without its payload, which may hold what logs must not."""
        return f"ScheduledJob({self.tenant_id!r}, {self.job_type!r}, {self.name!r}, {self.schedule!r}, {self.status})"
