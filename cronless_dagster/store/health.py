"""What `schedule_health` shows: lateness, stuck and failing jobs, the next day's minutes by due jobs.

Each question walks an index of just what it asks for and stops at a bound. With a million rows planned within a day
the walk over the minutes takes about a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, text

from cronless_dagster.store.statements import statement
from cronless_dagster.store.status import Status, read_status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

DUE_BOUND = 20_000
AHEAD_BOUND = 3_000_000
ENDED_BOUND = 100_000
HISTORY_BOUND = 500_000
FAILING_BOUND = 10_000
LISTED = 50
DAY = timedelta(hours=24)
STARTED_WITHIN = timedelta(minutes=15)
ENDED_WITHIN = timedelta(hours=1)

_EPOCH = datetime.fromisoformat("2000-01-01T00:00+00:00")
# The history's index can only be read by a bitmap, the others in their own order: see `status`.
_BY_BITMAP = text(
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'on', true)"
)
_UNSTARTED = text(
    "SELECT min(oldest_due_at) FROM cronless.job_claim"
    " WHERE state IN ('CLAIMED', 'SUBMITTED', 'RUNNING') AND started_at IS NULL"
)
_FAILING = text(
    "SELECT count(*) FROM (SELECT 1 FROM cronless.scheduled_job AS job"
    " WHERE job.consecutive_failures >= 3 ORDER BY job.consecutive_failures DESC, job.id LIMIT :bound) AS counted"
)
_INVALID = text(
    "SELECT job.id, job.tenant_id, job.job_type, job.name, job.invalid_reason AS reason"
    " FROM cronless.scheduled_job AS job WHERE job.status = 'INVALID' ORDER BY job.job_type, job.id LIMIT :most"
)


@dataclass(frozen=True, slots=True)
class Lateness:
    """How many jobs, and by how many seconds half of them, nineteen of twenty, and all of them are late at most."""

    number: int = 0
    p50: float | None = None
    p95: float | None = None
    longest: float | None = None


@dataclass(frozen=True, slots=True)
class Recent:
    """What the history says of `ENDED_WITHIN`.

    Attributes:
        tried: Tries that ended, a person's cancelling apart.
        failed: Those of them that didn't succeed, whether or not a retry follows.
        missed: Occurrences that were not served at all.
        started: Lateness of what was started in `STARTED_WITHIN` and has ended.
    """

    tried: int = 0
    failed: int = 0
    missed: int = 0
    started: Lateness = Lateness()


@dataclass(frozen=True, slots=True)
class StuckClaim:
    """A claim whose holder is gone and that nobody has rescued; `jobs` of it have had no lease since `since` (UTC)."""

    id: UUID
    job_type: str
    route: str
    state: str
    run_id: str | None
    jobs: int
    since: datetime


@dataclass(frozen=True, slots=True)
class FailingJob:
    """A job that failed `failures` occurrences in a row, at `at` (UTC) the last time."""

    id: UUID
    tenant_id: str
    job_type: str
    name: str
    failures: int
    error: str | None
    at: datetime | None
    paused: bool


@dataclass(frozen=True, slots=True)
class InvalidJob:
    """A job that can't be used as it is, and why."""

    id: UUID
    tenant_id: str
    job_type: str
    name: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Health:
    """How the schedule does at `status.now`; of everything that is listed one by one at most `LISTED`.

    Attributes:
        status: The counts by type that `cronless status` shows.
        ended: Jobs that have ended, by (job type, DONE or FAILED).
        due: Lateness of what is due now, and by job type.
        due_by_tenant: Of the tenants with the longest due jobs; percentiles are left out.
        recent: What the history says, and by job type.
        recent_by_tenant: Of the tenants with most failures.
        unstarted_since: When the longest due job became due that is claimed by a claim nobody has started (UTC).
        stuck: Claims whose lease ran out, the longest ago first; all of them.
        failing: Jobs with three failures in a row and more.
        failing_count: How many there are.
        invalid: Jobs that can't be used.
        minutes: Jobs by the minute (UTC) of the next `DAY` in which they become due next, and by job type.
        ahead: All jobs planned for an instant that lies ahead, by job type.
        at_least: Names of the numbers that stopped at their bound, beside those of `status`.
    """

    status: Status
    ended: Mapping[tuple[str, str], int]
    due: Lateness
    due_by_type: Mapping[str, Lateness]
    due_by_tenant: Mapping[str, Lateness]
    recent: Recent
    recent_by_type: Mapping[str, Recent]
    recent_by_tenant: Mapping[str, Recent]
    unstarted_since: datetime | None
    stuck: Sequence[StuckClaim]
    failing: Sequence[FailingJob]
    failing_count: int
    invalid: Sequence[InvalidJob]
    minutes: Mapping[datetime, Mapping[str, int]]
    ahead: Mapping[str, int]
    at_least: tuple[str, ...] = ()


def read_health(
    connection: Connection,
    now: datetime,
    *,
    stuck_after: timedelta = timedelta(minutes=5),
    due_bound: int = DUE_BOUND,
    ahead_bound: int = AHEAD_BOUND,
    listed: int = LISTED,
) -> Health:
    """Ask, in the caller's transaction.

    Args:
        connection: In a transaction, of which the rest uses index scans only.
        now: The database's current time (UTC).
        stuck_after: How long after a lease's end nobody has rescued its jobs; a tick does each minute.
        due_bound: The most due jobs of a type whose lateness is looked at.
        ahead_bound: The most planned jobs that are counted by minute; each type has an equal share of it, so that the
            number of types doesn't multiply the walk.
        listed: The most tenants, failing and invalid jobs.
    """
    status = read_status(connection, now)  # from here on by index
    names = [one.job_type for one in status.types]
    due = connection.execute(
        statement("due_lateness"), {"names": names, "now": now, "bound": due_bound, "tenants": listed}
    ).all()
    ahead_share = max(ahead_bound // max(len(names), 1), 1)
    minutes, ahead = _minutes(connection, names, now, ahead_share)
    ended = connection.execute(statement("ended_jobs"), {"bound": ENDED_BOUND}).all()
    failing = connection.execute(statement("failing_jobs"), {"most": listed})
    failing_count = connection.execute(_FAILING, {"bound": FAILING_BOUND}).scalar_one()
    invalid = connection.execute(_INVALID, {"most": listed})
    stuck = connection.execute(statement("stuck_claims"), {"before": now - stuck_after})
    unstarted = connection.execute(_UNSTARTED).scalar_one()
    connection.execute(_BY_BITMAP)
    recent = connection.execute(
        statement("recent_executions"),
        {
            "since": now - ENDED_WITHIN,
            "started_since": now - STARTED_WITHIN,
            "now": now,
            "bound": HISTORY_BOUND,
            "tenants": listed,
        },
    ).all()
    lateness = {(row.kind, row.name): _lateness(row) for row in due}
    history = {(row.kind, row.name): _recent(row) for row in recent}
    cut = {
        "due_lateness": any(lateness.get(("type", name), Lateness()).number >= due_bound for name in names),
        "ahead": any(number >= ahead_share for number in ahead.values()),
        "recent": any(row.kind == "all" and row.number >= HISTORY_BOUND for row in recent),
        "failing": failing_count >= FAILING_BOUND,
        **{
            state: sum(row.number for row in ended if row.status == state) >= ENDED_BOUND
            for state in ("DONE", "FAILED")
        },
    }
    return Health(
        status=status,
        ended={(row.job_type, row.status): row.number for row in ended},
        due=lateness.get(("all", None), Lateness()),
        due_by_type={name: one for (kind, name), one in lateness.items() if kind == "type"},
        due_by_tenant={name: one for (kind, name), one in lateness.items() if kind == "tenant"},
        recent=history.get(("all", None), Recent()),
        recent_by_type={name: one for (kind, name), one in history.items() if kind == "type"},
        recent_by_tenant={name: one for (kind, name), one in history.items() if kind == "tenant"},
        unstarted_since=unstarted,
        stuck=[StuckClaim(**row._asdict()) for row in stuck],
        failing=[FailingJob(**row._asdict()) for row in failing],
        failing_count=failing_count,
        invalid=[InvalidJob(**row._asdict()) for row in invalid],
        minutes=minutes,
        ahead=ahead,
        at_least=tuple(name for name, stopped in cut.items() if stopped),
    )


def _minutes(
    connection: Connection, names: Sequence[str], now: datetime, bound: int
) -> tuple[dict[datetime, dict[str, int]], dict[str, int]]:
    minutes: dict[datetime, dict[str, int]] = {}
    ahead = dict.fromkeys(names, 0)
    rows = connection.execute(
        statement("due_minutes"),
        {"names": list(names), "now": now, "until": now + DAY, "epoch": _EPOCH, "bound": bound},
    )
    for row in rows:
        ahead[row.job_type] += row.number
        if row.minute is not None:
            minutes.setdefault(row.minute, {})[row.job_type] = row.number
    return minutes, ahead


def _lateness(row: Any) -> Lateness:
    return Lateness(row.number, row.p50, row.p95, row.longest)


def _recent(row: Any) -> Recent:
    return Recent(
        int(row.tried), int(row.failed), int(row.missed), Lateness(row.started, row.p50, row.p95, row.longest)
    )
