"""The tables as SQLAlchemy Core knows them; the migrations are the source, and a test compares the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from cronless_dagster.store.revision import SCHEMA

if TYPE_CHECKING:
    from datetime import datetime

metadata = MetaData(schema=SCHEMA)
_ID = UUID(as_uuid=True)
_INSTANT = DateTime(timezone=True)
_CLOCK_NOW = text("cronless.clock_now()")


def _instant(name: str) -> Column[datetime]:
    return Column(name, _INSTANT)


scheduled_job = Table(
    "scheduled_job",
    metadata,
    Column("id", _ID, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("tenant_id", Text, nullable=False),
    Column("job_type", Text, nullable=False),
    Column("name", Text, nullable=False, server_default=text("''::text")),
    Column("payload", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("schedule", Text, nullable=False),
    Column("timezone", Text, nullable=False, server_default=text("'UTC'::text")),
    Column("dst_policy", Text, nullable=False, server_default=text("'vixie'::text")),
    Column("misfire_policy", Text, nullable=False, server_default=text("'latest'::text")),
    Column("misfire_grace_seconds", Integer, nullable=False, server_default=text("300")),
    _instant("starts_at"),
    _instant("ends_at"),
    Column("jitter_seconds", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer),
    Column("retry_delay_seconds", Integer),
    Column("retry_max_delay_seconds", Integer),
    Column("pause_after", Integer),
    Column("status", Text, nullable=False, server_default=text("'PENDING'::text")),
    _instant("next_run_at"),
    _instant("scheduled_for"),
    Column("tzdata_version", Text),
    Column("plan_version", BigInteger, nullable=False, server_default=text("0")),
    Column("plan_count", BigInteger, nullable=False, server_default=text("0")),
    Column("claim_id", _ID),
    _instant("serving_at"),
    _instant("due_at"),
    Column("serving_manual", Boolean, nullable=False, server_default=text("false")),
    Column("execution_id", _ID),
    _instant("lease_expires_at"),
    Column("report", JSONB),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("crashes", Integer, nullable=False, server_default=text("0")),
    Column("consecutive_failures", Integer, nullable=False, server_default=text("0")),
    Column("last_outcome", Text),
    Column("last_error", Text),
    _instant("last_finished_at"),
    Column("invalid_reason", Text),
    _instant("paused_at"),
    Column("pause_reason", Text),
    _instant("trigger_requested_at"),
    _instant("removed_at"),
    Column("created_at", _INSTANT, nullable=False, server_default=_CLOCK_NOW),
    Column("updated_at", _INSTANT, nullable=False, server_default=_CLOCK_NOW),
    Index(
        "scheduled_job_name",
        "tenant_id",
        "job_type",
        "name",
        unique=True,
        postgresql_where=text("removed_at IS NULL"),
    ),
    Index(
        "scheduled_job_due",
        "job_type",
        "next_run_at",
        "id",
        postgresql_where=text("status = 'PENDING' AND paused_at IS NULL"),
    ),
    Index(
        "scheduled_job_due_by_tenant",
        "job_type",
        "tenant_id",
        "next_run_at",
        "id",
        postgresql_where=text("status = 'PENDING' AND paused_at IS NULL"),
    ),
    Index(
        "scheduled_job_unplanned",
        "id",
        postgresql_where=text("status = 'PENDING' AND next_run_at IS NULL AND paused_at IS NULL"),
    ),
    Index(
        "scheduled_job_triggered",
        "job_type",
        "trigger_requested_at",
        "id",
        postgresql_where=text("status = 'PENDING' AND trigger_requested_at IS NOT NULL"),
    ),
    Index(
        "scheduled_job_claimed", "claim_id", "id", postgresql_where=text("status IN ('QUEUED', 'RUNNING')")
    ),
    Index("scheduled_job_reported", "id", postgresql_where=text("report IS NOT NULL")),
    Index("scheduled_job_invalid", "job_type", "id", postgresql_where=text("status = 'INVALID'")),
    Index(
        "scheduled_job_failing",
        text("consecutive_failures DESC"),
        "id",
        postgresql_where=text("consecutive_failures >= 3"),
    ),
    Index("scheduled_job_over", "status", "job_type", postgresql_where=text("status IN ('DONE', 'FAILED')")),
    Index(
        "scheduled_job_ended",
        "tenant_id",
        "job_type",
        "name",
        postgresql_where=text("status IN ('DONE', 'FAILED', 'INVALID')"),
    ),
    Index(
        "scheduled_job_ended_at",
        "last_finished_at",
        "id",
        postgresql_where=text("status IN ('DONE', 'FAILED')"),
    ),
    Index("scheduled_job_paused", "job_type", "id", postgresql_where=text("paused_at IS NOT NULL")),
)

job_claim = Table(
    "job_claim",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("job_type", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("id_low", _ID, nullable=False),
    Column("manual", Boolean, nullable=False, server_default=text("false")),
    Column("parent_id", _ID),
    Column("job_count", Integer, nullable=False),
    Column("done_count", Integer, nullable=False, server_default=text("0")),
    Column("failed_count", Integer, nullable=False, server_default=text("0")),
    Column("state", Text, nullable=False, server_default=text("'CLAIMED'::text")),
    Column("dispatches", Integer, nullable=False, server_default=text("0")),
    Column("run_id", Text),
    Column("execution_id", _ID),
    Column("lease_seconds", Integer, nullable=False),
    Column("lease_expires_at", _INSTANT, nullable=False),
    _instant("oldest_due_at"),
    _instant("handed_over_at"),
    Column("created_at", _INSTANT, nullable=False),
    _instant("submitted_at"),
    _instant("started_at"),
    _instant("closed_at"),
    Column("close_reason", Text),
    Column("published_to", _ID),
    Column("alone", Boolean, nullable=False, server_default=text("false")),
    Index(
        "job_claim_open", "created_at", postgresql_where=text("state IN ('CLAIMED', 'SUBMITTED', 'RUNNING')")
    ),
    Index("job_claim_closed", "closed_at", postgresql_where=text("state = 'CLOSED'")),
    Index(
        "job_claim_overtaking",
        "job_type",
        "created_at",
        postgresql_where=text("route = 'queue' AND started_at IS NOT NULL"),
    ),
)

job_execution = Table(
    "job_execution",
    metadata,
    Column("recorded_at", _INSTANT, nullable=False),
    Column("job_id", _ID, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("job_type", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    _instant("scheduled_for"),
    _instant("due_at"),
    _instant("started_at"),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("manual", Boolean, nullable=False, server_default=text("false")),
    Column("claim_id", _ID),
    Column("execution_id", _ID),
    Column("run_id", Text),
    Column("error", Text),
    _instant("missed_last"),
    Column("missed_count", Integer),
    Column("missed_reason", Text),
    Index("job_execution_job", "job_id", text("recorded_at DESC")),
    Index(
        "job_execution_recorded",
        "recorded_at",
        postgresql_using="brin",
        postgresql_with={"autosummarize": "on"},
    ),
    postgresql_partition_by="RANGE (recorded_at)",
)

job_type = Table(
    "job_type",
    metadata,
    Column("name", Text, primary_key=True),
    Column("route", Text, nullable=False),
    Column("batch_size", Integer, nullable=False),
    Column("seen_at", _INSTANT, nullable=False),
)

clock = Table(
    "clock",
    metadata,
    Column("only_row", Boolean, primary_key=True, server_default=text("true")),
    _instant("virtual_now"),
)

progress = Table(
    "progress",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", JSONB, nullable=False),
    Column("updated_at", _INSTANT, nullable=False),
)

check_done = Table(
    "check_done",
    metadata,
    Column("check_name", Text, primary_key=True),
    Column("place", _ID, primary_key=True),
    Column("window_start", _INSTANT, primary_key=True),
    Column("entity", Text, nullable=False),
    Column("over_at", _INSTANT, nullable=False, server_default=_CLOCK_NOW),
    Index("check_over_at", "over_at"),
)

health_snapshot = Table(
    "health_snapshot",
    metadata,
    Column("window_start", _INSTANT, primary_key=True),
    Column("job_type", Text, primary_key=True),
    Column("taken_at", _INSTANT, nullable=False),
    *(Column(name, Integer, nullable=False) for name in ("due", "late", "running", "stuck", "failing")),
    *(Column(f"lateness_{name}", Double) for name in ("p50", "p95", "p99")),
    Column("outcomes", JSONB, nullable=False),
)
