"""What the tests of the Dagster side share: jobs that are due, ticks, runs, and how to count what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import dagster as dg
from sqlalchemy import text

from cronless_dagster.definitions import build_definitions
from cronless_dagster.engine.running import run_claim
from cronless_dagster.store import jobs
from tests.engine.support import far_away

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobTypes
    from cronless_dagster.engine.running import ClaimReport


def add_due(
    engine: Engine,
    job_type: str,
    count: int,
    *,
    payload: dict[str, Any] | None = None,
    late: timedelta = timedelta(seconds=30),
    now: datetime | None = None,
    **options: Any,
) -> list[UUID]:
    """Add jobs that have been due for `late`, each of a tenant of its own."""
    now = now or datetime.now(UTC)
    with engine.begin() as connection:
        first = connection.scalar(text("SELECT count(*) FROM cronless.scheduled_job"))
        return [
            jobs.add(
                connection,
                tenant_id=f"tenant-{first + number:05d}",
                job_type=job_type,
                schedule=far_away(now),
                payload=payload,
                next_run_at=now - late,
                **options,
            )
            for number in range(count)
        ]


@dataclass(frozen=True)
class Tick:
    """What one evaluation of a sensor answered."""

    run_requests: Sequence[dg.RunRequest]
    skip_message: str | None


class Location:
    """A code location in this process: definitions and a Dagster instance in memory."""

    def __init__(self, job_types: JobTypes, url: str, instance: dg.DagsterInstance, **options: Any) -> None:
        self.job_types, self.instance = job_types, instance
        self.definitions = build_definitions(job_types, database_url=url, **options)

    def tick(self, sensor: str = "cronless_tick") -> Tick:
        """Evaluate a sensor once, as Dagster's daemon does."""
        with dg.build_sensor_context(
            definitions=self.definitions, instance=self.instance, resources=self.definitions.resources
        ) as context:
            data = self.definitions.resolve_sensor_def(sensor).evaluate_tick(context)
        return Tick(data.run_requests or [], data.skip_message)

    def add_run(
        self, request: dg.RunRequest, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTING
    ) -> dg.DagsterRun:
        """Make the run that was asked for, without running it; nothing runs, so any status can be given."""
        run = dg.DagsterRun(
            job_name=request.job_name or "",
            run_id=str(uuid4()),
            status=status,
            run_config=request.run_config,
            tags={**request.tags, "dagster/run_key": request.run_key or ""},
        )
        return self.instance.add_run(run)

    def execute(self, request: dg.RunRequest, *, fails: bool = False) -> dg.ExecuteInProcessResult:
        """Run what was asked for in this process."""
        result = self.definitions.resolve_job_def(request.job_name or "").execute_in_process(
            instance=self.instance,
            run_config=request.run_config,
            tags=dict(request.tags),
            raise_on_error=False,
        )
        assert result.success is not fails
        return result


def claim_of(request: dg.RunRequest) -> UUID:
    """Return the claim that a run is asked for."""
    return UUID(request.tags["cronless/claim"])


def hold_and_run(engine: Engine, job_types: JobTypes, run: dg.DagsterRun) -> ClaimReport:
    """Do a run's work without Dagster's machinery, which takes some seconds for each run."""
    return run_claim(
        engine,
        job_types,
        UUID(run.tags["cronless/claim"]),
        execution_id=UUID(run.run_id),
        run_id=run.run_id,
    )


def outcomes(engine: Engine) -> dict[str, int]:
    """Count the history by outcome."""
    with engine.connect() as connection:
        rows = connection.execute(
            text("SELECT outcome, count(*) AS number FROM cronless.job_execution GROUP BY outcome")
        )
        return {row.outcome: row.number for row in rows}


def claims(engine: Engine) -> list[Any]:
    """Return all claims, the oldest first."""
    with engine.connect() as connection:
        return list(
            connection.execute(text("SELECT * FROM cronless.job_claim ORDER BY created_at, id")).all()
        )


def job_rows(engine: Engine) -> list[Any]:
    """Return all scheduled jobs in the order in which they were added."""
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT * FROM cronless.scheduled_job ORDER BY tenant_id")).all())


def assert_all_done_once(engine: Engine, ids: Sequence[UUID], *, after: datetime | None = None) -> None:
    """Check that no job was lost and no occurrence accepted twice, and that each waits for its next one."""
    with engine.connect() as connection:
        twice = connection.execute(
            text(
                "SELECT job_id, scheduled_for, count(*) FROM cronless.job_execution WHERE outcome = 'success'"
                " GROUP BY job_id, scheduled_for HAVING count(*) > 1"
            )
        ).all()
        succeeded = set(
            connection.scalars(
                text("SELECT job_id FROM cronless.job_execution WHERE outcome = 'success'")
            ).all()
        )
        rows = connection.execute(
            text("SELECT id, status, next_run_at, claim_id, attempt FROM cronless.scheduled_job")
        ).all()
    assert not twice
    assert succeeded == set(ids)
    threshold = after or datetime.now(UTC)
    assert {row.id for row in rows} >= set(ids)
    for row in rows:
        if row.id in succeeded:
            assert (row.status, row.claim_id, row.attempt) == ("PENDING", None, 0)
            assert row.next_run_at > threshold
