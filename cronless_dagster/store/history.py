"""The history of executions: its partitions, their retention, and reading it."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlalchemy import Connection, Engine, Row, text
from sqlalchemy.exc import IntegrityError, OperationalError

from cronless_dagster.store.database import transaction, translated_errors
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from cronless_dagster.scheduling.models import MissedStretch

logger = logging.getLogger(__name__)

DAYS_AHEAD = 14
PRUNE_SECONDS = 10.0
_CHECK_VIOLATION = "23514"
_IN_USE = ("57014", "55P03")  # canceled by us, or no lock in time
_PARTITION_PREFIX = "job_execution_"
_T = TypeVar("_T")

_DROP_UNOWNED = text("SELECT cronless.drop_history_partition(:day)")

_ENSURE = text("SELECT cronless.ensure_history_partition(:day)")
_ENSURE_AHEAD = text(
    "SELECT count(*) FILTER (WHERE made) FROM (SELECT cronless.ensure_history_partition(CAST(:day AS date) + n)"
    " AS made FROM generate_series(0, :ahead) AS n) AS days"
)


def ensure_partitions(connection: Connection, now: datetime, *, ahead: int = DAYS_AHEAD) -> int:
    """Make the day partitions from today (UTC) to `ahead` days on; returns how many were missing."""
    return int(connection.execute(_ENSURE_AHEAD, {"day": now.date(), "ahead": ahead}).scalar_one())


def with_partition(engine: Engine, now: datetime | None, write: Callable[[], _T]) -> _T:
    """Run a whole transaction that writes history; where its day's partition is missing, make it and run again.

    Args:
        engine: Where to make the partition.
        now: The instant of the history rows; None for the database's clock.
        write: The transaction, from its begin to its commit.
    """
    try:
        return write()
    except IntegrityError as error:
        if not _partition_is_missing(error):
            raise
    with transaction(engine) as connection:
        at = now or connection.execute(text("SELECT cronless.clock_now()")).scalar_one()
        connection.execute(_ENSURE, {"day": at.date()})
    return write()


def _partition_is_missing(error: IntegrityError) -> bool:
    # Not by the message, which is in the server's language: a row without a partition violates no constraint
    # that has a name.
    diagnosis = getattr(error.orig, "diag", None)
    return (
        getattr(error.orig, "sqlstate", None) == _CHECK_VIOLATION
        and getattr(diagnosis, "table_name", None) == "job_execution"
        and getattr(diagnosis, "constraint_name", None) is None
    )


@dataclass(frozen=True, slots=True)
class Missed:
    """A stretch of missed instants of one job, to be recorded."""

    job_id: UUID
    tenant_id: str
    job_type: str
    stretch: MissedStretch


def record_missed(connection: Connection, missed: Sequence[Missed], now: datetime) -> None:
    """Write one history row a stretch."""
    if not missed:
        return
    connection.execute(
        statement("record_missed"),
        {
            "now": now,
            "ids": [one.job_id for one in missed],
            "tenants": [one.tenant_id for one in missed],
            "job_types": [one.job_type for one in missed],
            "firsts": [one.stretch.first for one in missed],
            "lasts": [one.stretch.last for one in missed],
            "counts": [one.stretch.count for one in missed],
            "missed_reasons": [one.stretch.reason for one in missed],
        },
    )


def prune(engine: Engine, now: datetime, keep_days: int) -> list[str]:
    """Drop the partitions of days that ended more than `keep_days` ago, and the claims closed before.

    A partition is detached CONCURRENTLY first, so that writers and readers of other days go on; a detach that
    was cut off earlier is finished. A user that doesn't own the history has a function do it. Whoever reads
    the old day holds it up: after `PRUNE_SECONDS` the rest is left for another time.

    Returns the names of what was dropped.
    """
    oldest = (now - timedelta(days=keep_days)).date()
    dropped: list[str] = []
    with (
        translated_errors(engine),
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        _canceled_after(connection, PRUNE_SECONDS),
    ):
        for name, owned, attached, pending in _partitions(connection):
            if _day(name) >= oldest:
                continue
            if not owned:
                connection.execute(_DROP_UNOWNED, {"day": _day(name)})
                dropped.append(name)
                continue
            if pending:
                connection.execute(
                    text(f"ALTER TABLE cronless.job_execution DETACH PARTITION cronless.{name} FINALIZE")
                )
            elif attached:
                connection.execute(
                    text(f"ALTER TABLE cronless.job_execution DETACH PARTITION cronless.{name} CONCURRENTLY")
                )
            connection.execute(text(f"DROP TABLE cronless.{name}"))
            dropped.append(name)
        connection.execute(
            text("DELETE FROM cronless.job_claim WHERE state = 'CLOSED' AND closed_at < :before"),
            {"before": now - timedelta(days=keep_days)},
        )
    return dropped


@contextmanager
def _canceled_after(connection: Connection, seconds: float) -> Iterator[None]:
    """Cancel what the connection is doing after so long, and end the block quietly.

    A `statement_timeout` could only be set for the session here, since DETACH CONCURRENTLY takes no transaction,
    and behind PgBouncer the session is somebody else's next.
    """
    timer = threading.Timer(seconds, cast("Any", connection.connection.driver_connection).cancel)
    timer.start()
    try:
        yield
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) not in _IN_USE:
            raise
        logger.warning("old history is in use and stays for now")
    finally:
        timer.cancel()


def _partitions(connection: Connection) -> list[tuple[str, bool, bool, bool]]:
    """Return (name, ours, attached, detach pending) of each table of the history, detached leftovers included."""
    rows = connection.execute(
        text(
            "SELECT c.relname, pg_has_role(c.relowner, 'USAGE') AS owned,"
            " i.inhrelid IS NOT NULL AS attached, coalesce(i.inhdetachpending, false) AS pending"
            " FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid"
            " WHERE n.nspname = 'cronless' AND c.relkind = 'r' AND c.relname ~ '^job_execution_[0-9]{8}$'"
            " ORDER BY c.relname"
        )
    )
    return [(row.relname, row.owned, row.attached, row.pending) for row in rows]


def _day(partition: str) -> date:
    return date.fromisoformat(partition.removeprefix(_PARTITION_PREFIX))


_OF_JOB = text(
    "SELECT recorded_at, outcome, scheduled_for, due_at, started_at, attempt, manual, claim_id, execution_id, run_id,"
    " error, missed_last, missed_count, missed_reason FROM cronless.job_execution"
    " WHERE job_id = :job_id ORDER BY recorded_at DESC LIMIT :most"
)


def of_job(connection: Connection, job_id: UUID, most: int = 20) -> Sequence[Row[Any]]:
    """Return a job's latest history rows, the newest first."""
    return connection.execute(_OF_JOB, {"job_id": job_id, "most": most}).all()
