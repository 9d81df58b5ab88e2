"""Short ways to write rows, claims and results in the tests of the store.

Instants are given as ISO texts in UTC where that reads better; `NOW` is where the tests' virtual clock starts.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.engine.local import tick_and_run
from cronless_dagster.engine.planning import plan_rows
from cronless_dagster.engine.report import TickReport
from cronless_dagster.scheduling.models import Outcome, RetryPolicy
from cronless_dagster.scheduling.planner import plan_next
from cronless_dagster.scheduling.shards import FULL, IdRange
from cronless_dagster.store import claims
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.loading import load_page
from cronless_dagster.store.results import Result, finish_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Engine, Row

    from cronless_dagster.engine.running import ClaimReport
    from cronless_dagster.store.rows import ClaimedJob

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SUCCESS = Outcome("success")
FAILURE = Outcome("failure", error="it broke")


def at(text_: str) -> datetime:
    """Return the instant of a text such as "09:30" (on the day of `NOW`) or "2026-03-03T09:30"."""
    whole = text_ if "T" in text_ else f"{NOW:%Y-%m-%d}T{text_}"
    return datetime.fromisoformat(whole).replace(tzinfo=UTC)


def sql(engine: Engine, statement: str, **parameters: Any) -> list[Row[Any]]:
    """Run one plain statement in a transaction of its own and return its rows, if it has any."""
    with engine.begin() as connection:
        result = connection.execute(text(statement), parameters)
        return list(result.all()) if result.returns_rows else []


def add_row(engine: Engine, **columns: Any) -> UUID:
    """Insert a job by plain SQL; what isn't given is an hourly job of its own name."""
    values = {
        "tenant_id": "acme",
        "job_type": "digest",
        "name": uuid.uuid4().hex,
        "schedule": "0 * * * *",
        **columns,
    }
    names = ", ".join(values)
    places = ", ".join(f":{name}" for name in values)
    [row] = sql(
        engine, f"INSERT INTO cronless.scheduled_job ({names}) VALUES ({places}) RETURNING id", **values
    )
    return row.id


def edit(engine: Engine, job_id: UUID, **columns: Any) -> None:
    """Change a job as a user of plain SQL does."""
    changes = ", ".join(f"{name} = :{name}" for name in columns)
    sql(engine, f"UPDATE cronless.scheduled_job SET {changes} WHERE id = :id", id=job_id, **columns)


def row(engine: Engine, job_id: UUID) -> Row[Any]:
    """Return a job's row."""
    [found] = sql(engine, "SELECT * FROM cronless.scheduled_job WHERE id = :id", id=job_id)
    return found


def exists(engine: Engine, job_id: UUID) -> bool:
    """Tell whether the job's row is there, be it as a tombstone."""
    return bool(sql(engine, "SELECT 1 FROM cronless.scheduled_job WHERE id = :id", id=job_id))


def history(engine: Engine, job_id: UUID) -> list[Row[Any]]:
    """Return a job's history, the oldest first."""
    return sql(
        engine,
        "SELECT * FROM cronless.job_execution WHERE job_id = :id ORDER BY recorded_at, outcome = 'missed'",
        id=job_id,
    )


def outcomes(engine: Engine, job_id: UUID) -> list[str]:
    """Return what a job's history says, the oldest first."""
    return [one.outcome for one in history(engine, job_id)]


def claim_row(engine: Engine, claim_id: UUID) -> Row[Any]:
    """Return a claim's row."""
    [found] = sql(engine, "SELECT * FROM cronless.job_claim WHERE id = :id", id=claim_id)
    return found


def set_clock(engine: Engine, now: datetime) -> datetime:
    """Move the virtual clock."""
    with transaction(engine) as connection:
        return current_time(connection, now)


def plan(engine: Engine, now: datetime = NOW, job_types: JobTypes | None = None) -> TickReport:
    """Do the tick's planning step."""
    report = TickReport(now=now)
    plan_rows(engine, report, FULL, now, lambda: True, job_types)
    return report


def planned_row(engine: Engine, now: datetime = NOW, **columns: Any) -> UUID:
    """Insert a job and plan it."""
    set_clock(engine, now)
    job_id = add_row(engine, **columns)
    plan(engine, now)
    return job_id


def due_row(engine: Engine, due: datetime = NOW, **columns: Any) -> UUID:
    """Insert a job that is due at an instant of its schedule."""
    return add_row(engine, next_run_at=due, scheduled_for=due, **columns)


def claim(
    engine: Engine,
    now: datetime = NOW,
    *,
    job_type: str = "digest",
    most: int = 1_000,
    ids: IdRange = FULL,
    triggered: bool = False,
    route: str = "run",
) -> UUID | None:
    """Claim what is due of a type, without deciding misfires; returns the claim's id, None where nothing was."""
    take = claims.claim_triggered if triggered else claims.claim_due
    with transaction(engine) as connection:
        at_ = current_time(connection, now)
        taken = take(
            connection,
            job_type=job_type,
            route=route,
            batch_size=most,
            lease_seconds=600,
            now=at_,
            ids=ids,
        )
    return None if taken is None else taken.claim_id


@dataclass
class Holder:
    """Somebody who has started a claim of the run route."""

    engine: Engine
    claim_id: UUID
    execution_id: UUID
    jobs: Sequence[ClaimedJob]

    def finish(
        self, outcome: Outcome = SUCCESS, now: datetime = NOW, jobs: Sequence[ClaimedJob] | None = None
    ) -> set[UUID]:
        """Report the same outcome for the jobs, all by default; returns the ids that were accepted."""
        with transaction(self.engine) as connection:
            now = current_time(connection, now)
            claims.hold_claim(connection, self.claim_id, self.execution_id, now)
            results = [
                Result(job, plan_next(job.plan, outcome, now), outcome.error, now)
                for job in (self.jobs if jobs is None else jobs)
            ]
            return finish_jobs(connection, results, now, run_id="a run", holder=self.execution_id)


def start(
    engine: Engine, claim_id: UUID | None, now: datetime = NOW, retry: RetryPolicy | None = None
) -> Holder:
    """Start a claim as a run does, and load its jobs."""
    assert claim_id is not None, "nothing was claimed"
    execution_id = uuid.uuid4()
    with transaction(engine) as connection:
        now = current_time(connection, now)
        assert claims.start_claim(connection, claim_id, execution_id, "a run", now) is not None
        jobs = load_page(connection, claim_id, uuid.UUID(int=0), 10_000, retry or RetryPolicy())
    return Holder(engine, claim_id, execution_id, jobs)


def serve(
    engine: Engine, now: datetime = NOW, outcome: Outcome = SUCCESS, *, triggered: bool = False
) -> set[UUID]:
    """Claim what is due and finish it at the same instant."""
    return start(engine, claim(engine, now, triggered=triggered), now).finish(outcome, now)


def job_types(*names: str, **options: Any) -> JobTypes:
    """Declare job types, "digest" by default, whose handlers do nothing."""
    return JobTypes(
        tuple(
            JobType(name=name, handler=options.pop("handler", lambda _: None), concurrency=1, **options)
            for name in names or ("digest",)
        )
    )


def tick(
    engine: Engine, now: datetime = NOW, types: JobTypes | None = None
) -> tuple[TickReport, list[ClaimReport]]:
    """Tick and run what was claimed, in this process."""
    report, ran = tick_and_run(engine, types or job_types(), now=now)
    assert report.errors == []
    return report, ran
